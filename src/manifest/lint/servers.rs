//! Lint: MCP servers whose traffic others can read, or whose definitions may change.

use serde_json::Value;
use url::{Host, Url};

use super::Lints;
use crate::call::units::Time;
use crate::manifest::decode::join;
use crate::manifest::node::{Data, Node};
use crate::manifest::rule::Rule;
use crate::pins::Pins;
use crate::suggest;

/// Checks `url` of an entry of `mcp_servers:`.
pub(super) fn look(entry: &Node, under: &str, lints: &mut Lints) {
    let Some(Node { data: Data::Scalar(Value::String(text)), place }) = entry.get("url") else { return };
    // A URL with a reference for its whole host cannot be parsed and is not checked.
    let Ok(url) = Url::parse(text) else { return };
    if url.scheme() == "http" && !is_near(&url) {
        let message = "without TLS whoever is on the way reads arguments, results and headers, and may change them; \
                       write https";
        lints.warn(Rule::PlainHttp, place, join(under, &["url".into()]), message);
    }
}

/// Finds a server that is started for each call, and whose start may take longer than the call.
pub(super) fn starts(entry: &Node, under: &str, lints: &mut Lints) {
    let said = |key: &str| entry.get(key).and_then(|node| Some((node, node.to_json().as_str()?.to_owned())));
    let time = |key: &str| said(key).and_then(|(node, text)| Some((node, Time::parse(&text).ok()?.0)));
    if said("mode").is_some_and(|(_, mode)| mode == "on_demand")
        && let (Some((node, start)), Some((_, call))) = (time("start_timeout"), time("timeout"))
        && start > call
    {
        let message = "a server on_demand starts within its call, so `timeout` ends a start that takes this long; only the \
                       start that lists its tools may take it";
        lints.warn(Rule::Ineffective, &node.place, join(under, &["start_timeout".into()]), message);
    }
}

/// Compares this server's entry with its pins.
pub(super) fn pinned(name: &str, entry: &Node, under: &str, pins: Option<&Pins>, lints: &mut Lints) {
    let Some(pins) = pins else {
        let message = "is not pinned: whatever the server says of its tools is taken as it is; `toolcrib pin` keeps what \
                       they are now, and what is another then is stopped";
        return lints.warn(Rule::UnpinnedServer, &entry.place, under, message);
    };
    let Some(pins) = pins.servers.get(name) else {
        let message =
            "is not pinned, though the manifest has pins, so all its tools are stopped; `toolcrib pin` approves it";
        return lints.warn(Rule::UnpinnedServer, &entry.place, under, message);
    };
    if !pins.has_reach(&entry.to_json()) {
        let message = "is reached in another way than when it was pinned, so all its tools are stopped; `toolcrib pin` \
                       approves it";
        return lints.warn(Rule::UnpinnedServer, &entry.place, under, message);
    }
    for (key, _) in entry.get("tools").and_then(Node::entries).unwrap_or_default() {
        if pins.tools.contains_key(&key.text) {
            continue;
        }
        let there = match suggest::closest(&key.text, pins.tools.keys().map(String::as_str), suggest::HINT) {
            Some(near) => format!("did you mean {near}?"),
            None => "if it has it now, `toolcrib pin` approves that".into(),
        };
        let message = format!("the server had no such tool when it was pinned; {there}");
        lints.warn(Rule::UnknownTool, &key.place, join(under, &["tools".into(), key.text.clone()]), message);
    }
}

/// Whether data that is sent to the URL stays on this machine.
fn is_near(url: &Url) -> bool {
    match url.host() {
        Some(Host::Domain(name)) => name == "localhost" || name.ends_with(".localhost"),
        Some(Host::Ipv4(address)) => address.is_loopback(),
        Some(Host::Ipv6(address)) => address.to_canonical().is_loopback(),
        None => false,
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::found;

    #[test]
    fn a_start_within_a_call_is_held_against_its_timeout() {
        for (entry, says) in [
            ("mode: on_demand, start_timeout: 60s, timeout: 4s", true),
            ("mode: on_demand, start_timeout: 4s, timeout: 4s", false),
            ("mode: on_demand, timeout: 4s", false),
            ("start_timeout: 60s, timeout: 4s", false),
        ] {
            let found = found(&format!("mcp_servers:\n  s: {{command: [x], {entry}}}\n"), &[]);
            let warned = found.contains(&"warning ineffective mcp_servers.s.start_timeout 2".to_owned());
            assert_eq!(warned, says, "{entry}: {found:?}");
        }
    }

    #[test]
    fn a_server_far_away_is_reached_with_tls() {
        for (url, plain) in [
            ("http://mcp.example.com/mcp", true),
            ("http://10.0.0.7:8000/mcp", true),
            ("https://mcp.example.com/mcp", false),
            ("http://localhost:8000/mcp", false),
            ("http://127.0.0.2/mcp", false),
            ("http://[::1]:8000/mcp", false),
        ] {
            let found = found(&format!("mcp_servers:\n  docs: {{url: \"{url}\"}}\n"), &[]);
            let says = found.contains(&"warning plain-http mcp_servers.docs.url 2".to_owned());
            assert_eq!(says, plain, "{url}: {found:?}");
        }
    }
}
