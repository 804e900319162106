//! What is sent, where and how: the manifest's `telemetry:`, completed by the `OTEL_*` variables.

use std::collections::BTreeMap;
use std::time::Duration;

use reqwest::header::{HeaderMap, HeaderName, HeaderValue};
use url::Url;

use super::sampling::Sampling;
use super::signal::{Batching, Protocol, Signal};
use super::variables::Variables;
use crate::environment::Environment;

/// `telemetry:` of the manifest.
#[derive(Clone, PartialEq, Default)]
pub struct Settings {
    /// The base URL of the collector.
    pub otlp: Option<Url>,
    /// Headers for the collector, such as a key.
    pub headers: BTreeMap<String, String>,
    /// The protocol of the collector.
    pub protocol: Option<Protocol>,
    /// The part of the calls that is recorded, from 0 to 1.
    pub sample: Option<f64>,
    /// Whether spans hold arguments and results.
    pub capture: bool,
}

/// The complete settings.
pub struct Config {
    pub(super) endpoints: [Option<Url>; 3],
    pub(super) headers: HeaderMap,
    pub(super) protocol: Protocol,
    pub(super) timeout: Duration,
    pub(super) sampling: Sampling,
    pub(super) capture: bool,
    pub(super) resource: BTreeMap<String, String>,
    pub(super) span_batching: Batching,
    pub(super) log_batching: Batching,
    pub(super) metric_interval: Duration,
    /// Variables whose values were ignored.
    pub(super) warnings: Vec<String>,
}

/// Reads one header.
///
/// # Errors
/// What is wrong with it. The value is not quoted.
pub fn parse_header(name: &str, value: &str) -> Result<(HeaderName, HeaderValue), String> {
    let header = HeaderName::from_bytes(name.as_bytes())
        .map_err(|_| format!("`{name}` is not the name of a header"))?;
    let mut value = HeaderValue::from_str(value)
        .map_err(|_| format!("the value of `{name}` is not the value of a header"))?;
    value.set_sensitive(true);
    Ok((header, value))
}

impl Config {
    /// The values of the headers, as a whole and without the scheme of an authorization.
    pub fn header_secrets(&self) -> Vec<String> {
        let values = self.headers.values().filter_map(|one| one.to_str().ok());
        let words =
            values.flat_map(|value| [Some(value), value.split_once(' ').map(|(_, key)| key)]);
        words.flatten().map(str::to_owned).collect()
    }

    /// Completes the manifest's settings by the `OTEL_*` variables. The manifest takes precedence.
    /// `None` if no collector is configured, or `OTEL_SDK_DISABLED` is `true`.
    pub fn resolve(manifest: Option<&Settings>, environment: &Environment) -> Option<Self> {
        let mut variables = Variables::new(environment);
        if variables.is_true("OTEL_SDK_DISABLED") {
            return None;
        }
        let from_manifest = manifest.cloned().unwrap_or_default();
        let protocol = from_manifest
            .protocol
            .or_else(|| variables.protocol())
            .unwrap_or_default();
        let base = from_manifest
            .otlp
            .or_else(|| variables.endpoint("OTEL_EXPORTER_OTLP_ENDPOINT"));
        let endpoints = Signal::ALL.map(|signal| {
            if !variables.exports(signal) {
                return None;
            }
            let name = signal.as_str().to_ascii_uppercase();
            let own = format!("OTEL_EXPORTER_OTLP_{name}_ENDPOINT");
            let own = manifest
                .is_none_or(|manifest| manifest.otlp.is_none())
                .then(|| variables.endpoint(&own))
                .flatten();
            match protocol {
                Protocol::Http => {
                    own.or_else(|| Some(with_path(base.clone()?, &signal.http_path())))
                }
                Protocol::Grpc => own
                    .or_else(|| base.clone())
                    .map(|url| with_path(url, signal.grpc_path())),
            }
        });
        if endpoints.iter().all(Option::is_none) {
            return None;
        }
        let mut headers = HeaderMap::new();
        for (name, value) in variables.pairs("OTEL_EXPORTER_OTLP_HEADERS") {
            match parse_header(&name, &value) {
                Ok((name, value)) => {
                    headers.insert(name, value);
                }
                Err(error) => variables.warn("OTEL_EXPORTER_OTLP_HEADERS", &error),
            }
        }
        // The manifest's headers were checked when it was read.
        let from_manifest_headers = from_manifest
            .headers
            .iter()
            .filter_map(|(name, value)| parse_header(name, value).ok());
        for (name, value) in from_manifest_headers {
            headers.insert(name, value);
        }
        let sampling = match from_manifest.sample {
            Some(part) => Sampling::parent_based_ratio(part),
            None => variables.sampling(),
        };
        Some(Self {
            endpoints,
            headers,
            protocol,
            timeout: variables.milliseconds("OTEL_EXPORTER_OTLP_TIMEOUT", 10_000),
            sampling,
            capture: from_manifest.capture,
            resource: variables.resource(),
            span_batching: variables.batching("OTEL_BSP", 5000),
            log_batching: variables.batching("OTEL_BLRP", 1000),
            metric_interval: variables.milliseconds("OTEL_METRIC_EXPORT_INTERVAL", 60_000),
            warnings: variables.into_warnings(),
        })
    }
}

/// Appends a path to the path of a base URL.
fn with_path(mut base: Url, path: &str) -> Url {
    let joined = format!("{}{path}", base.path().trim_end_matches('/'));
    base.set_path(&joined);
    base
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::telemetry::parse_endpoint;

    fn resolve(manifest: Option<&Settings>, variables: &[(&str, &str)]) -> Option<Config> {
        Config::resolve(manifest, &variables.iter().copied().collect())
    }

    fn urls(config: &Config) -> [Option<&str>; 3] {
        [0, 1, 2].map(|at| config.endpoints[at].as_ref().map(Url::as_str))
    }

    const BASE: (&str, &str) = ("OTEL_EXPORTER_OTLP_ENDPOINT", "http://c:4318/base/");

    #[test]
    fn endpoints_follow_the_standard_variables() {
        assert!(resolve(None, &[]).is_none());
        assert!(resolve(Some(&Settings::default()), &[]).is_none());
        assert!(resolve(None, &[BASE, ("OTEL_SDK_DISABLED", "TRUE")]).is_none());
        let config = resolve(None, &[BASE]).unwrap();
        assert_eq!(
            urls(&config),
            [
                Some("http://c:4318/base/v1/traces"),
                Some("http://c:4318/base/v1/metrics"),
                Some("http://c:4318/base/v1/logs")
            ]
        );
        let own = ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "https://t.example/in");
        let config = resolve(None, &[own, ("OTEL_LOGS_EXPORTER", "none")]).unwrap();
        assert_eq!(urls(&config), [Some("https://t.example/in"), None, None]);
        let config = resolve(None, &[BASE, ("OTEL_METRICS_EXPORTER", "none")]).unwrap();
        assert_eq!(urls(&config)[1], None);
        let grpc = ("OTEL_EXPORTER_OTLP_PROTOCOL", "grpc");
        let config = resolve(
            None,
            &[grpc, ("OTEL_EXPORTER_OTLP_ENDPOINT", "http://c:4317")],
        );
        assert_eq!(
            urls(&config.unwrap())[0],
            Some("http://c:4317/opentelemetry.proto.collector.trace.v1.TraceService/Export")
        );
    }

    #[test]
    fn manifest_takes_precedence() {
        let manifest = Settings {
            otlp: Some(parse_endpoint("http://m:1").unwrap()),
            headers: [("a".to_owned(), "2".to_owned())].into(),
            protocol: Some(Protocol::Http),
            ..Settings::default()
        };
        let variables = [
            BASE,
            ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "http://t:2/x"),
            ("OTEL_EXPORTER_OTLP_PROTOCOL", "grpc"),
            ("OTEL_EXPORTER_OTLP_HEADERS", "a=1,b=x%20y"),
            ("OTEL_SERVICE_NAME", "crib"),
            ("OTEL_RESOURCE_ATTRIBUTES", "team=a,service.name=other"),
        ];
        let config = resolve(Some(&manifest), &variables).unwrap();
        assert_eq!(urls(&config)[0], Some("http://m:1/v1/traces"));
        let header = |name: &str| config.headers[name].to_str().unwrap();
        assert_eq!((header("a"), header("b")), ("2", "x y"));
        assert_eq!(config.resource["service.name"], "crib");
        assert_eq!(config.resource["team"], "a");
        assert_eq!(config.warnings, [""; 0]);
    }

    #[test]
    fn bad_variables_are_ignored_with_a_warning() {
        let variables = [
            BASE,
            ("OTEL_EXPORTER_OTLP_TIMEOUT", "soon"),
            ("OTEL_TRACES_SAMPLER", "dice"),
            ("OTEL_EXPORTER_OTLP_PROTOCOL", "http/json"),
            ("OTEL_EXPORTER_OTLP_HEADERS", "secret-without-a-name"),
        ];
        let config = resolve(None, &variables).unwrap();
        assert_eq!(config.timeout, Duration::from_secs(10));
        assert_eq!(config.warnings.len(), 4, "{:?}", config.warnings);
        assert!(!config.warnings.concat().contains("secret-without"));
    }

    #[test]
    fn passwords_stay_out_of_urls() {
        assert!(parse_endpoint("http://me:secret@c:4318").is_err());
        assert!(parse_endpoint("ftp://c").is_err());
        assert!(parse_endpoint("c:4318").is_err());
    }
}
