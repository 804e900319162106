//! Reads `server:` of a manifest.

use std::ops::RangeInclusive;

use super::decode::Entry;
use super::listen::complete_address;
use super::sections::Server;
use super::server_settings::ServerSettings;
use crate::access::public_url::PublicUrl;

/// Fewer connections would leave a client waiting behind a few idle ones. With more, each new
/// connection costs too much while the table is full.
const CONNECTIONS: RangeInclusive<usize> = 8..=65_536;

/// The settings of the section, the listen address if it names one, and findings about values that
/// cannot be used.
pub(super) fn read_server(root: Entry<'_>, section: Server) -> (ServerSettings, Option<String>) {
    let report = |key: &str, message: &str| root.error(&["server", key], message);
    let listen = section.listen.as_deref().and_then(|text| {
        complete_address(text)
            .map_err(|message| report("listen", &message))
            .ok()
    });
    let public_url = section.public_url.as_deref().and_then(|text| {
        PublicUrl::parse(text)
            .map_err(|message| report("public_url", message))
            .ok()
    });
    let plain = ServerSettings::default();
    let settings = ServerSettings {
        max_body: section
            .max_body
            .map_or(plain.max_body, |size| size.as_usize()),
        max_in_flight: section.max_in_flight.unwrap_or(plain.max_in_flight),
        max_connections: section.max_connections.unwrap_or(plain.max_connections),
        linger: section.linger.map_or(plain.linger, |time| time.0),
        drain: section.drain.map_or(plain.drain, |time| time.0),
        allowed_hosts: section.allowed_hosts,
        allowed_origins: section.allowed_origins,
        allow_open: section.allow_open,
        public_url,
        serves_toolbox: plain.serves_toolbox,
    };
    if settings.max_in_flight == 0 {
        report("max_in_flight", "at least one call must be able to run");
    }
    if !CONNECTIONS.contains(&settings.max_connections) {
        let (low, high) = (CONNECTIONS.start(), CONNECTIONS.end());
        report("max_connections", &format!("must be from {low} to {high}"));
    }
    (settings, listen)
}
