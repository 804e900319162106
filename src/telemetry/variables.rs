//! Reads the standard `OTEL_*` variables.
//!
//! As the specification of OpenTelemetry requires, a value that cannot be used is ignored with a
//! warning. An empty value counts as absent.

use std::collections::BTreeMap;
use std::time::Duration;

use percent_encoding::percent_decode_str;
use url::Url;

use super::sampling::Sampling;
use super::signal::{Batching, Protocol, Signal, parse_endpoint};
use crate::environment::Environment;

/// The variables of one start, and the warnings about them.
pub(super) struct Variables<'a> {
    environment: &'a Environment,
    warnings: Vec<String>,
}

impl<'a> Variables<'a> {
    pub(super) fn new(environment: &'a Environment) -> Self {
        Self {
            environment,
            warnings: Vec::new(),
        }
    }

    pub(super) fn into_warnings(self) -> Vec<String> {
        self.warnings
    }

    /// Notes that the value of a variable is ignored. Values may be secrets, so none is quoted.
    pub(super) fn warn(&mut self, name: &str, reason: &str) {
        self.warnings.push(format!("{name} is ignored: {reason}"));
    }

    fn text(&self, name: &str) -> Option<&'a str> {
        let text = self.environment.get_text(name)?.trim();
        (!text.is_empty()).then_some(text)
    }

    pub(super) fn is_true(&self, name: &str) -> bool {
        self.text(name)
            .is_some_and(|value| value.eq_ignore_ascii_case("true"))
    }

    /// Whether a signal is exported. Other exporters than OTLP do not exist here.
    pub(super) fn exports(&mut self, signal: Signal) -> bool {
        let name = format!("OTEL_{}_EXPORTER", signal.as_str().to_ascii_uppercase());
        match self.text(&name) {
            None | Some("otlp") => true,
            Some("none") => false,
            Some(_) => {
                self.warn(&name, "write otlp or none");
                true
            }
        }
    }

    pub(super) fn endpoint(&mut self, name: &str) -> Option<Url> {
        match parse_endpoint(self.text(name)?) {
            Ok(url) => Some(url),
            Err(error) => {
                self.warn(name, &error);
                None
            }
        }
    }

    pub(super) fn protocol(&mut self) -> Option<Protocol> {
        const NAME: &str = "OTEL_EXPORTER_OTLP_PROTOCOL";
        match self.text(NAME)? {
            "grpc" => Some(Protocol::Grpc),
            "http/protobuf" => Some(Protocol::Http),
            _ => {
                self.warn(NAME, "write http/protobuf or grpc");
                None
            }
        }
    }

    pub(super) fn milliseconds(&mut self, name: &str, default: u64) -> Duration {
        Duration::from_millis(self.number(name, default).max(1))
    }

    fn number(&mut self, name: &str, default: u64) -> u64 {
        let Some(text) = self.text(name) else {
            return default;
        };
        text.parse().unwrap_or_else(|_| {
            self.warn(name, "write a whole number");
            default
        })
    }

    /// The settings of a queue, below a prefix such as `OTEL_BSP`.
    pub(super) fn batching(&mut self, prefix: &str, delay_ms: u64) -> Batching {
        let size = |number: u64| usize::try_from(number).unwrap_or(usize::MAX);
        let waiting = self.number(&format!("{prefix}_MAX_QUEUE_SIZE"), 2048);
        let together = self.number(&format!("{prefix}_MAX_EXPORT_BATCH_SIZE"), 512);
        Batching {
            waiting: size(waiting).clamp(1, Batching::MAX_WAITING),
            together: size(together).clamp(1, Batching::MAX_WAITING),
            delay: self.milliseconds(&format!("{prefix}_SCHEDULE_DELAY"), delay_ms),
        }
    }

    /// A list `name=value,…` with percent-encoded values, as in W3C Baggage.
    pub(super) fn pairs(&mut self, name: &str) -> Vec<(String, String)> {
        let (mut pairs, mut is_valid) = (Vec::new(), true);
        let items = self.text(name).unwrap_or_default().split(',');
        for item in items.map(str::trim).filter(|item| !item.is_empty()) {
            let pair = item.split_once('=').and_then(|(key, value)| {
                let value = percent_decode_str(value.trim()).decode_utf8().ok()?;
                Some((key.trim().to_owned(), value.into_owned()))
            });
            match pair.filter(|(key, _)| !key.is_empty()) {
                Some(pair) => pairs.push(pair),
                None => is_valid = false,
            }
        }
        if !is_valid {
            self.warn(name, "write NAME=VALUE,NAME=VALUE");
            return Vec::new();
        }
        pairs
    }

    /// The attributes of the resource that variables set.
    pub(super) fn resource(&mut self) -> BTreeMap<String, String> {
        let mut resource: BTreeMap<String, String> =
            self.pairs("OTEL_RESOURCE_ATTRIBUTES").into_iter().collect();
        if let Some(name) = self.text("OTEL_SERVICE_NAME") {
            resource.insert("service.name".to_owned(), name.to_owned());
        }
        resource
    }

    pub(super) fn sampling(&mut self) -> Sampling {
        const SAMPLER: &str = "OTEL_TRACES_SAMPLER";
        const ARGUMENT: &str = "OTEL_TRACES_SAMPLER_ARG";
        let (part, is_valid) = match self.text(ARGUMENT).map(str::parse::<f64>) {
            None => (1.0, true),
            Some(Ok(part)) if (0.0..=1.0).contains(&part) => (part, true),
            Some(_) => (1.0, false),
        };
        if !is_valid {
            self.warn(ARGUMENT, "write a number from 0 to 1");
        }
        match self.environment.get_text(SAMPLER).map(str::trim) {
            None | Some("" | "parentbased_always_on") => Sampling::parent_based_ratio(1.0),
            Some("always_on") => Sampling::ratio(1.0),
            Some("always_off") => Sampling::ratio(0.0),
            Some("traceidratio") => Sampling::ratio(part),
            Some("parentbased_always_off") => Sampling::parent_based_ratio(0.0),
            Some("parentbased_traceidratio") => Sampling::parent_based_ratio(part),
            Some(_) => {
                let known = "write always_on, always_off or traceidratio, or one of them after parentbased_";
                self.warn(SAMPLER, known);
                Sampling::parent_based_ratio(1.0)
            }
        }
    }
}
