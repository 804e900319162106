//! Reads the sections of a manifest that set the service up and declare no tools.

use std::ops::RangeInclusive;

use url::Url;

use super::callers::check_caller_name;
use super::contents::ServerSettings;
use super::decode::Entry;
use super::listen::complete_address;
use super::sections::{Approvals, Ledger, Notify, Server, Telemetry};
use crate::access::WebhookSecret;
use crate::access::public_url::PublicUrl;
use crate::approval::receivers::{ApprovalNotices, Receiver};
use crate::call::{CallSettings, DigestKey};
use crate::ledger;
use crate::telemetry::{Settings, parse_endpoint, parse_header};

/// Reports settings with which no call could run.
pub(super) fn check_calls(root: Entry<'_>, calls: &CallSettings) {
    if calls.parallel == 0 {
        root.error(
            &["calls", "parallel"],
            "at least one call must be able to run",
        );
    }
    if calls.max_parse_attempts.least() == 0 {
        let message = "the first attempt counts too: write 1 or more";
        root.error(&["calls", "max_parse_attempts"], message);
    }
}

/// Reports settings of the ledger that cannot be used.
pub(super) fn check_ledger(root: Entry<'_>, section: &Ledger) {
    let error = |key: &str, message: String| root.error(&["ledger", key], message);
    let is_weak = |secret: &str| DigestKey::from_secret(secret).is_none();
    if section.digest_key.as_deref().is_some_and(is_weak) {
        let message = "a key that cannot be guessed is needed: 16 bytes or more";
        error("digest_key", message.into());
    }
    if let Some(url) = section.url.as_deref() {
        let scheme = url.split_once("://").map(|(scheme, _)| scheme);
        let others = scheme.filter(|one| !["sqlite", "postgres", "postgresql"].contains(one));
        if ledger::is_in_memory_url(url) {
            let message =
                "there is no ledger in memory: name a file, sqlite://FILE, or leave the key out";
            error("url", message.into());
        } else if let Some(scheme) = others {
            let message = format!(
                "there is no ledger of this kind, `{scheme}`: write sqlite://FILE or postgres://USER@HOST/DATABASE"
            );
            error("url", message);
        } else if let Err(ledger::Error::InvalidUrl { reason, .. }) = ledger::check_url(url) {
            error("url", reason);
        }
    }
    if section.retention.is_some_and(|keep| keep.0.is_zero()) {
        let message = "at least some time is needed: leave it out to keep all";
        error("retention", message.into());
    }
    if let Some(size) = section.max_bytes {
        if size.0 < ledger::MIN_SIZE_BOUND {
            let smallest = bytesize::ByteSize(ledger::MIN_SIZE_BOUND);
            let message = format!("at least {smallest} is needed: leave it out for no bound");
            error("max_bytes", message);
        }
        if section.url.as_deref().is_some_and(ledger::is_shared_url) {
            let message = "a bound is only for a file: leave it out, and set `retention`";
            error("max_bytes", message.into());
        }
    }
}

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
        requires_sandbox: section.sandbox.is_some(),
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

/// The receivers of the section, and findings about those that cannot be used.
pub(super) fn read_approvals(
    root: Entry<'_>,
    section: Approvals,
    public_url: Option<&PublicUrl>,
) -> Option<ApprovalNotices> {
    if section.notify.is_empty() {
        return None;
    }
    let mut receivers: Vec<Receiver> = Vec::new();
    for (index, entry) in section.notify.iter().enumerate() {
        match read_receiver(entry, &receivers) {
            Ok(receiver) => receivers.push(receiver),
            Err((key, message)) => {
                root.error(&["approvals", "notify", &index.to_string(), key], message);
            }
        }
    }
    let Some(public_url) = public_url else {
        // A value that cannot be used has a finding of its own.
        if root
            .get("server")
            .is_some_and(|one| one.get("public_url").is_some())
        {
            return None;
        }
        let message = "webhooks contain a link to this service: set server.public_url, e.g. \
                       https://tools.example.com";
        root.error(&["approvals", "notify"], message);
        return None;
    };
    Some(ApprovalNotices {
        public_url: public_url.clone(),
        receivers,
    })
}

/// The key at fault, and what is expected there.
type Fault = (&'static str, &'static str);

fn read_receiver(entry: &Notify, others: &[Receiver]) -> Result<Receiver, Fault> {
    let url = Url::parse(&entry.url)
        .ok()
        .filter(|url| matches!(url.scheme(), "http" | "https"))
        .ok_or(("url", "an http or https URL is expected"))?;
    let secret = WebhookSecret::parse(&entry.secret).map_err(|message| ("secret", message))?;
    let host = url.host_str().unwrap_or_default();
    let name = entry.name.as_deref().unwrap_or(host);
    if check_caller_name(name).is_some() {
        let message = "a receiver's name has 1 to 128 characters of A-Z a-z 0-9 _ - . @";
        return Err(("name", message));
    }
    if others.iter().any(|other| *other.name == *name) {
        let message = "two receivers have this name: give each a `name` of its own";
        return Err(("name", message));
    }
    let name = name.into();
    Ok(Receiver { name, url, secret })
}

#[cfg(test)]
mod tests {
    use super::super::testing::load_text;

    const SECRET: &str = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";

    fn errors(notify: &str) -> Vec<String> {
        let text =
            format!("server: {{public_url: 'https://t.test'}}\napprovals: {{notify: {notify}}}\n");
        load_text(&text).err().unwrap_or_default()
    }

    #[test]
    fn receivers_have_names_and_secrets() {
        let text = format!(
            "server: {{public_url: 'https://t.test/x'}}\napprovals:\n  notify:\n    \
     - {{url: 'https://chat.test/h', secret: {SECRET}}}\n    \
     - {{url: 'https://chat.test/i', secret: {SECRET}, name: mail}}\n"
        );
        let notices = load_text(&text).unwrap().approvals.unwrap();
        let names: Vec<&str> = notices.receivers.iter().map(|one| &*one.name).collect();
        assert_eq!(names, ["chat.test", "mail"]);
        assert_eq!(notices.public_url.join(""), "https://t.test/x/");
    }

    #[test]
    fn unusable_receivers_are_explained() {
        let one = format!("{{url: 'https://c.test', secret: {SECRET}}}");
        for (notify, expected) in [
            ("[{url: c.test, secret: x}]".to_owned(), "http or https URL"),
            (
                "[{url: 'https://c.test', secret: short}]".to_owned(),
                "openssl rand -base64 32",
            ),
            (format!("[{one}, {one}]"), "`name` of its own"),
            (
                format!("[{{url: 'https://c.test', secret: {SECRET}, name: 'a b'}}]"),
                "A-Z a-z 0-9",
            ),
        ] {
            let errors = errors(&notify);
            assert!(
                errors.len() == 1 && errors[0].contains(expected),
                "{notify}: {errors:?}"
            );
        }
        let without_url = load_text(&format!("approvals: {{notify: [{one}]}}\n"));
        assert!(without_url.err().unwrap()[0].contains("set server.public_url"));
        let bad_url = load_text("server: {public_url: 'https://t.test/?x=1'}\n");
        assert!(bad_url.err().unwrap()[0].contains("server.public_url"));
    }
}
