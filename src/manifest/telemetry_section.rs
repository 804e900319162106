//! Reads `telemetry:` of a manifest.

use super::decode::Entry;
use super::sections::Telemetry;
use crate::telemetry::{Settings, parse_endpoint, parse_header};

/// The settings of the section, and findings about those that cannot be used.
pub(super) fn read_telemetry(root: Entry<'_>, section: Telemetry) -> Settings {
    let endpoint = section.otlp.as_deref().and_then(|text| {
        parse_endpoint(text)
            .map_err(|message| root.error(&["telemetry", "otlp"], message))
            .ok()
    });
    for (name, value) in &section.headers {
        if let Err(message) = parse_header(name, value) {
            root.error(&["telemetry", "headers", name], message);
        }
    }
    let is_part = |part: f64| (0.0..=1.0).contains(&part);
    if !section.sample.is_none_or(is_part) {
        let message = "a part of the calls is from 0 (no call) to 1 (each call)";
        root.error(&["telemetry", "sample"], message);
    }
    Settings {
        otlp: endpoint,
        headers: section.headers,
        protocol: section.protocol,
        sample: section.sample,
        capture: section.capture,
    }
}
