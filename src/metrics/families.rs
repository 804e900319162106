//! Creates metric families and registers them.

use prometheus::core::Collector;
use prometheus::{
    Counter, Error, Histogram, HistogramOpts, HistogramVec, IntCounterVec, IntGauge, IntGaugeVec, Opts, Registry,
};

/// Creates families in one registry.
#[derive(Default)]
pub(super) struct Families {
    pub(super) registry: Registry,
}

impl Families {
    pub(super) fn add<C: Collector + Clone + 'static>(&self, family: C) -> Result<C, Error> {
        self.registry.register(Box::new(family.clone()))?;
        Ok(family)
    }

    pub(super) fn counters(&self, name: &str, help: &str, labels: &[&str]) -> Result<IntCounterVec, Error> {
        self.add(IntCounterVec::new(Opts::new(name, help), labels)?)
    }

    /// A counter of seconds.
    pub(super) fn seconds(&self, name: &str, help: &str) -> Result<Counter, Error> {
        self.add(Counter::new(name, help)?)
    }

    pub(super) fn gauge(&self, name: &str, help: &str) -> Result<IntGauge, Error> {
        self.add(IntGauge::new(name, help)?)
    }

    pub(super) fn gauges(&self, name: &str, help: &str, labels: &[&str]) -> Result<IntGaugeVec, Error> {
        self.add(IntGaugeVec::new(Opts::new(name, help), labels)?)
    }

    pub(super) fn histogram(&self, name: &str, help: &str, buckets: &[f64]) -> Result<Histogram, Error> {
        self.add(Histogram::with_opts(HistogramOpts::new(name, help).buckets(buckets.to_vec()))?)
    }

    pub(super) fn histograms(
        &self,
        name: &str,
        help: &str,
        labels: &[&str],
        buckets: &[f64],
    ) -> Result<HistogramVec, Error> {
        self.add(HistogramVec::new(HistogramOpts::new(name, help).buckets(buckets.to_vec()), labels)?)
    }
}
