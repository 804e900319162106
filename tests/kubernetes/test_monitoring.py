"""What Prometheus and the autoscaler are told."""

import rules
from rendering import one


def test_monitors_and_rules_fit_the_operator(helm, kustomize):
    monitors = [one(helm.template({"serviceMonitor": {"enabled": True, **more}}), "ServiceMonitor") for more in (
        {}, {"labels": {"release": "prometheus"}, "interval": "1m30s", "scrapeTimeout": "500ms"}, {"keySecret": {"name": "", "key": "a"}})]
    alerts = one(helm.template({"prometheusRule": {"enabled": True}}), "PrometheusRule")
    for part in [*monitors, alerts, one(kustomize("overlays/production"), "ServiceMonitor")]:
        rules.fits_the_operator(part)


def test_prometheus_is_admitted_by_the_network_policy(helm):
    """As the operator labels it, from any namespace: the key is checked in any case."""
    peers = one(helm.template({"serviceMonitor": {"enabled": True}}), "NetworkPolicy")["spec"]["ingress"][0]["from"]
    assert {"namespaceSelector": {}, "podSelector": {"matchLabels": {"app.kubernetes.io/name": "prometheus"}}} in peers
