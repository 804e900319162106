//! Makes the messages of metrics, from the same families as `GET /metrics`, with the same names.

use std::time::{Duration, SystemTime};

use futures_util::future::BoxFuture;
use opentelemetry_proto::tonic::collector::metrics::v1::ExportMetricsServiceRequest;
use opentelemetry_proto::tonic::common::v1::KeyValue;
use opentelemetry_proto::tonic::metrics::v1::metric::Data;
use opentelemetry_proto::tonic::metrics::v1::number_data_point::Value;
use opentelemetry_proto::tonic::metrics::v1::{
    AggregationTemporality, Gauge, Histogram, HistogramDataPoint, Metric, NumberDataPoint,
    ResourceMetrics, ScopeMetrics, Sum,
};
use prost::Message;
use tokio::time::{MissedTickBehavior, interval};
use tokio_util::sync::CancellationToken;

use super::attributes::{Attributes, scope};
use super::ended_span::unix_nanos;
use super::exporter::Exporter;
use super::queue::send_with_retries;
use super::signal::Signal;
use crate::metrics::{MetricFamily, MetricSeries, MetricType};

/// Gathers the metrics of the service.
pub type GatherMetrics = Box<dyn Fn() -> BoxFuture<'static, Vec<MetricFamily>> + Send + Sync>;

/// Sends the metrics at each interval, and once more when the service stops.
pub(super) async fn run(
    exporter: &Exporter,
    stop: &CancellationToken,
    every: Duration,
    started_at: SystemTime,
    gather: GatherMetrics,
) {
    let mut ticks = interval(every);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    // The first tick is at once.
    ticks.tick().await;
    loop {
        tokio::select! {
            _ = ticks.tick() => {}
            () = stop.cancelled() => {}
        }
        let (message, count) = encode(exporter, &gather().await, started_at);
        send_with_retries(exporter, Signal::Metrics, message, count, stop).await;
        if stop.is_cancelled() {
            return;
        }
    }
}

fn encode(
    exporter: &Exporter,
    families: &[MetricFamily],
    started_at: SystemTime,
) -> (Vec<u8>, u64) {
    let times = (unix_nanos(started_at), unix_nanos(SystemTime::now()));
    let metrics: Vec<Metric> = families
        .iter()
        .map(|family| to_metric(family, times))
        .collect();
    let count = families
        .iter()
        .map(|family| family.get_metric().len() as u64);
    let count = count.sum();
    let request = ExportMetricsServiceRequest {
        resource_metrics: vec![ResourceMetrics {
            resource: Some(exporter.resource()),
            scope_metrics: vec![ScopeMetrics {
                scope: Some(scope()),
                metrics,
                ..ScopeMetrics::default()
            }],
            ..ResourceMetrics::default()
        }],
    };
    (request.encode_to_vec(), count)
}

/// A family as a metric. `times` are the start of the counting and now.
fn to_metric(family: &MetricFamily, times: (u64, u64)) -> Metric {
    let temporality = AggregationTemporality::Cumulative.into();
    let series = family.get_metric();
    let numbers = |read: fn(&MetricSeries) -> f64, start: u64| {
        let point = |series: &MetricSeries| NumberDataPoint {
            attributes: labels(series),
            start_time_unix_nano: start,
            time_unix_nano: times.1,
            value: Some(Value::AsDouble(read(series))),
            ..NumberDataPoint::default()
        };
        series.iter().map(point).collect()
    };
    let data = match family.get_field_type() {
        MetricType::COUNTER => Data::Sum(Sum {
            data_points: numbers(|series| series.get_counter().get_value(), times.0),
            aggregation_temporality: temporality,
            is_monotonic: true,
        }),
        MetricType::HISTOGRAM => Data::Histogram(Histogram {
            data_points: series
                .iter()
                .map(|one| histogram_point(one, times))
                .collect(),
            aggregation_temporality: temporality,
        }),
        // The service has no other types than these.
        MetricType::GAUGE | MetricType::SUMMARY | MetricType::UNTYPED => Data::Gauge(Gauge {
            data_points: numbers(|series| series.get_gauge().get_value(), 0),
        }),
    };
    let name = family.name();
    let unit = match name.trim_end_matches("_total") {
        name if name.ends_with("_seconds") => "s",
        name if name.ends_with("_bytes") => "By",
        _ => "",
    };
    Metric {
        name: name.to_owned(),
        description: family.help().to_owned(),
        unit: unit.to_owned(),
        data: Some(data),
        ..Metric::default()
    }
}

/// Prometheus counts what is below each bound; OTLP counts what is between two bounds.
fn histogram_point(series: &MetricSeries, (start, now): (u64, u64)) -> HistogramDataPoint {
    let histogram = series.get_histogram();
    let (count, mut below) = (histogram.get_sample_count(), 0);
    let (mut bounds, mut counts) = (Vec::new(), Vec::new());
    for bucket in histogram.get_bucket() {
        if bucket.upper_bound().is_finite() {
            bounds.push(bucket.upper_bound());
            counts.push(bucket.cumulative_count().saturating_sub(below));
            below = bucket.cumulative_count();
        }
    }
    counts.push(count.saturating_sub(below));
    HistogramDataPoint {
        attributes: labels(series),
        start_time_unix_nano: start,
        time_unix_nano: now,
        count,
        sum: Some(histogram.get_sample_sum()),
        bucket_counts: counts,
        explicit_bounds: bounds,
        ..HistogramDataPoint::default()
    }
}

fn labels(series: &MetricSeries) -> Vec<KeyValue> {
    let mut attributes = Attributes::default();
    for label in series.get_label() {
        attributes.text(label.name(), label.value());
    }
    attributes.into_vec()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buckets_are_counted_between_their_bounds() {
        let histogram = prometheus::Histogram::with_opts(
            prometheus::HistogramOpts::new("a_seconds", "h").buckets(vec![1.0, 2.0]),
        )
        .unwrap();
        for value in [0.5, 1.5, 1.6, 9.0] {
            histogram.observe(value);
        }
        let registry = prometheus::Registry::new();
        registry.register(Box::new(histogram)).unwrap();
        let metric = to_metric(&registry.gather()[0], (1, 2));
        assert_eq!(
            (metric.name.as_str(), metric.unit.as_str()),
            ("a_seconds", "s")
        );
        let Some(Data::Histogram(found)) = metric.data else {
            panic!("not a histogram");
        };
        let point = &found.data_points[0];
        assert_eq!(point.bucket_counts, [1, 2, 1]);
        assert_eq!(point.explicit_bounds, [1.0, 2.0]);
        assert_eq!((point.count, point.sum), (4, Some(12.6)));
    }
}
