"""What Prometheus and the autoscaler are told."""

import rules
from rendering import one


def test_service_monitors_fit_the_operator(helm, kustomize):
    monitors = [one(helm.template({"serviceMonitor": {"enabled": True, **more}}), "ServiceMonitor") for more in (
        {}, {"labels": {"release": "prometheus"}, "interval": "1m30s", "scrapeTimeout": "500ms"}, {"keySecret": {"name": "", "key": "a"}})]
    for monitor in [*monitors, one(kustomize("overlays/production"), "ServiceMonitor")]:
        rules.fits_the_operator(monitor)
