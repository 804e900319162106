//! Reads `telemetry:` of a manifest.

use super::decode::Findings;
use super::node::Node;
use super::sections::Telemetry;
use crate::telemetry::{Settings, parse_endpoint, parse_header};

/// The settings of the section, and findings about those that cannot be used.
pub(super) fn read_telemetry(root: &Node, section: Telemetry, findings: &mut Findings) -> Settings {
    let path = |keys: &[&str]| -> Vec<String> {
        let keys = keys.iter().map(|key| (*key).to_owned());
        std::iter::once("telemetry".to_owned())
            .chain(keys)
            .collect()
    };
    let endpoint = section.otlp.as_deref().map(parse_endpoint).transpose();
    let endpoint = endpoint.unwrap_or_else(|message| {
        findings.error(root, &path(&["otlp"]), "", message);
        None
    });
    for (name, value) in &section.headers {
        if let Err(message) = parse_header(name, value) {
            findings.error(root, &path(&["headers", name]), "", message);
        }
    }
    if section
        .sample
        .is_some_and(|part| !(0.0..=1.0).contains(&part))
    {
        let message = "a part of the calls is from 0 (no call) to 1 (each call)";
        findings.error(root, &path(&["sample"]), "", message);
    }
    Settings {
        otlp: endpoint,
        headers: section.headers,
        protocol: section.protocol,
        sample: section.sample,
        capture: section.capture,
    }
}
