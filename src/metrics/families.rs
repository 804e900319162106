//! Creates metric families and registers them.

use prometheus::core::Collector;
use prometheus::{
    Counter, Error, Histogram, HistogramOpts, HistogramVec, IntCounterVec, IntGauge, IntGaugeVec,
    Opts, Registry,
};

/// Creates families in one registry.
#[derive(Default)]
pub(super) struct Families {
    pub(super) registry: Registry,
}

impl Families {
    pub(super) fn register<C: Collector + Clone + 'static>(&self, family: C) -> Result<C, Error> {
        self.registry.register(Box::new(family.clone()))?;
        Ok(family)
    }

    pub(super) fn counter_vec(
        &self,
        name: &str,
        help: &str,
        labels: &[&str],
    ) -> Result<IntCounterVec, Error> {
        self.register(IntCounterVec::new(Opts::new(name, help), labels)?)
    }

    /// A counter of seconds.
    pub(super) fn seconds_counter(&self, name: &str, help: &str) -> Result<Counter, Error> {
        self.register(Counter::new(name, help)?)
    }

    pub(super) fn gauge(&self, name: &str, help: &str) -> Result<IntGauge, Error> {
        self.register(IntGauge::new(name, help)?)
    }

    pub(super) fn gauge_vec(
        &self,
        name: &str,
        help: &str,
        labels: &[&str],
    ) -> Result<IntGaugeVec, Error> {
        self.register(IntGaugeVec::new(Opts::new(name, help), labels)?)
    }

    pub(super) fn histogram(
        &self,
        name: &str,
        help: &str,
        buckets: &[f64],
    ) -> Result<Histogram, Error> {
        self.register(Histogram::with_opts(
            HistogramOpts::new(name, help).buckets(buckets.to_vec()),
        )?)
    }

    pub(super) fn histogram_vec(
        &self,
        name: &str,
        help: &str,
        labels: &[&str],
        buckets: &[f64],
    ) -> Result<HistogramVec, Error> {
        self.register(HistogramVec::new(
            HistogramOpts::new(name, help).buckets(buckets.to_vec()),
            labels,
        )?)
    }
}
