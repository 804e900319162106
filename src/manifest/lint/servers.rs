//! Lint: MCP servers whose traffic others can read, or whose definitions may change.

use std::path::Path;

use url::{Host, Url};
use wildmatch::WildMatch;

use super::secrets::resolve_text;
use super::{Lints, Located};
use crate::access::tool_pattern::is_glob;
use crate::call::units::HumanDuration;
use crate::manifest::node::Node;
use crate::manifest::pins::Pins;
use crate::manifest::references::ManifestInput;
use crate::manifest::rule::Rule;
use crate::text::suggest;

/// Checks `url` of an entry of `mcp_servers:`.
pub(super) fn check_url(entry: &Located<'_>, lints: &mut Lints) {
    let Some(at) = entry.get("url") else {
        return;
    };
    // A URL with a reference for its whole host cannot be parsed and is not checked.
    let url = Url::parse(at.text());
    if url.is_ok_and(|url| url.scheme() == "http" && !is_loopback_host(&url)) {
        let message = "without TLS, others on the network can read and change arguments, results and headers; write \
                       https";
        lints.warn_of(Rule::PlainHttp, &at, message);
    }
}

/// Finds a server that is started for each call, and whose start may take longer than the call.
pub(super) fn check_start_timeout(entry: &Located<'_>, lints: &mut Lints) {
    let time = |key: &str| {
        let at = entry.get(key)?;
        let time = HumanDuration::parse(at.node.as_str()?).ok()?.0;
        Some((at, time))
    };
    if entry
        .get("mode")
        .is_some_and(|mode| mode.text() == "on_demand")
        && let (Some((at, start)), Some((_, call))) = (time("start_timeout"), time("timeout"))
        && start > call
    {
        let message = "an on_demand server starts within each call, so `timeout` ends a start that takes this long; \
                       only the start that lists its tools may take so long";
        lints.warn_of(Rule::Ineffective, &at, message);
    }
}

/// Compares this server's entry with its pins.
pub(super) fn check_pins(name: &str, entry: &Located<'_>, pins: Option<&Pins>, lints: &mut Lints) {
    let Some(pins) = pins else {
        let message = "is not pinned: the definitions of its tools are used without approval; `toolcrib pin` \
                       records them, and a tool whose definition changes later is quarantined";
        return lints.warn_of(Rule::UnpinnedServer, entry, message);
    };
    let Some(pins) = pins.servers.get(name) else {
        let message = "is not pinned, though the manifest has pins, so all its tools are quarantined; `toolcrib pin` approves it";
        return lints.warn_of(Rule::UnpinnedServer, entry, message);
    };
    if !pins.matches_reach(&entry.node.to_json()) {
        let reach = match entry.node.get("document") {
            Some(_) => "document or base URL",
            None => "command or URL",
        };
        let message = format!(
            "has another {reach} than when it was pinned, so all its tools are quarantined; `toolcrib pin` approves it"
        );
        return lints.warn_of(Rule::UnpinnedServer, entry, message);
    }
    for (key, tool) in entry.get("tools").iter().flat_map(Located::entries) {
        let mut pinned = pins.tools.keys();
        let is_pinned = match is_glob(&key.text) {
            true => pinned.any(|name| WildMatch::new(&key.text).matches(name)),
            false => pins.tools.contains_key(&key.text),
        };
        if is_pinned {
            continue;
        }
        let names = pins.tools.keys().map(String::as_str);
        let advice = match suggest::near_name(&key.text, names) {
            Some(near) => format!("did you mean {near}?"),
            None => "if the server has it now, `toolcrib pin` approves it".into(),
        };
        let message = format!("there was no such tool when the source was pinned; {advice}");
        lints.warn(Rule::UnknownTool, &key.location, tool.path, message);
    }
}

/// Finds `trust_hints` of a server without pins: hints of a server that may change them at will
/// decide nothing.
pub(super) fn check_trust_hints(
    name: &str,
    entry: &Located<'_>,
    pins: Option<&Pins>,
    lints: &mut Lints,
) {
    let trusts = entry.get("trust_hints");
    if let Some(at) = trusts.filter(|at| at.node.to_json() == true)
        && pins.is_none_or(|pins| !pins.servers.contains_key(name))
    {
        let message = "has no effect: only the hints of a pinned server decide an effect; `toolcrib pin` pins it";
        lints.warn_of(Rule::Ineffective, &at, message);
    }
}

/// Whether an entry of `openapi:` has its document at a URL, where others may change it. `base` is
/// the folder of the manifest.
pub(super) fn is_document_at_url(entry: &Node, base: &Path, input: &dyn ManifestInput) -> bool {
    entry
        .get("document")
        .and_then(|node| resolve_text(node, base, input))
        .is_some_and(|text| text.contains("://"))
}

/// Whether data that is sent to the URL stays on this machine.
fn is_loopback_host(url: &Url) -> bool {
    match url.host() {
        Some(Host::Domain(name)) => name == "localhost" || name.ends_with(".localhost"),
        Some(Host::Ipv4(address)) => address.is_loopback(),
        Some(Host::Ipv6(address)) => address.to_canonical().is_loopback(),
        None => false,
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::finding_lines;

    #[test]
    fn on_demand_start_must_fit_the_timeout() {
        for (entry, is_expected) in [
            ("mode: on_demand, start_timeout: 60s, timeout: 4s", true),
            ("mode: on_demand, start_timeout: 4s, timeout: 4s", false),
            ("mode: on_demand, timeout: 4s", false),
            ("start_timeout: 60s, timeout: 4s", false),
        ] {
            let found = finding_lines(
                &format!("mcp_servers:\n  s: {{command: [x], {entry}}}\n"),
                &[],
            );
            let warned =
                found.contains(&"warning ineffective mcp_servers.s.start_timeout 2".to_owned());
            assert_eq!(warned, is_expected, "{entry}: {found:?}");
        }
    }

    #[test]
    fn remote_server_without_tls_is_a_warning() {
        for (url, plain) in [
            ("http://mcp.example.com/mcp", true),
            ("http://10.0.0.7:8000/mcp", true),
            ("https://mcp.example.com/mcp", false),
            ("http://localhost:8000/mcp", false),
            ("http://127.0.0.2/mcp", false),
            ("http://[::1]:8000/mcp", false),
        ] {
            let found = finding_lines(&format!("mcp_servers:\n  docs: {{url: \"{url}\"}}\n"), &[]);
            let is_expected =
                found.contains(&"warning plain-http mcp_servers.docs.url 2".to_owned());
            assert_eq!(is_expected, plain, "{url}: {found:?}");
        }
    }
}
