//! The resource: which service sends.

use std::collections::BTreeMap;

use opentelemetry_proto::tonic::resource::v1::Resource;

use super::attributes::Attributes;

/// The resource with these attributes, and with defaults for those that every service has.
pub(super) fn build(own: &BTreeMap<String, String>) -> Resource {
    let instance = uuid::Uuid::now_v7().to_string();
    let defaults = [
        ("service.name", env!("CARGO_PKG_NAME")),
        ("service.version", env!("CARGO_PKG_VERSION")),
        ("service.instance.id", &instance),
        ("telemetry.sdk.language", "rust"),
        // The messages are made from the data of the ledger, not by the SDK of OpenTelemetry.
        ("telemetry.sdk.name", env!("CARGO_PKG_NAME")),
        ("telemetry.sdk.version", env!("CARGO_PKG_VERSION")),
    ];
    let mut attributes = Attributes::default();
    for (name, value) in defaults {
        if !own.contains_key(name) {
            attributes.text(name, value);
        }
    }
    for (name, value) in own {
        attributes.text(name, value);
    }
    Resource {
        attributes: attributes.into_vec(),
        ..Resource::default()
    }
}
