//! Lint: URLs of tools, models and MCP servers that lead to this service itself. While it runs,
//! requests to its own port are refused.

use serde_json::Value;
use url::Url;

use super::{Lints, Located};
use crate::kinds::http::points_to_this_machine;
use crate::manifest::parsed::{MCP_SERVERS, ParsedManifest};
use crate::manifest::rule::Rule;
use crate::manifest::self_reference::is_own_mcp_url;

/// Checks every URL that is written in full.
pub(super) fn check_own_address(parsed: &ParsedManifest, listen: &str, lints: &mut Lints) {
    let port = listen
        .rsplit_once(':')
        .and_then(|(_, port)| port.parse::<u16>().ok());
    let Some(port) = port.filter(|port| *port != 0) else {
        return;
    };
    let mut check = |at: Option<Located<'_>>, is_known: &dyn Fn(&Url) -> bool| {
        let Some(at) = at else { return };
        let Ok(url) = Url::parse(at.text()) else {
            return;
        };
        if url.port_or_known_default() == Some(port)
            && points_to_this_machine(&url)
            && !is_known(&url)
        {
            let message = format!(
                "is a URL of this service itself, which listens at {listen} unless --listen is given and refuses \
                 requests of its own tools; write the URL of another service"
            );
            lints.warn_of(Rule::OwnAddress, &at, message);
        }
    };
    for tool in &parsed.tools {
        let entry = Located::new(&tool.entry, &tool.path);
        let request = entry.get("request");
        // Without `allow_private`, loading has already reported an address of this machine.
        let allows_private = tool
            .entry
            .get("request")
            .and_then(|request| request.get("allow_private"));
        let is_open = allows_private.is_some_and(|node| node.to_json() == Value::Bool(true));
        let is_name = |url: &Url| {
            url.domain()
                .is_some_and(|name| !name.trim_end_matches('.').ends_with("localhost"))
        };
        let url = request.and_then(|request| request.get("url"));
        check(url, &|url| !is_open && !is_name(url));
        let model = entry.get("model");
        check(model.and_then(|model| model.get("base_url")), &|_| false);
    }
    let is_written = parsed
        .root
        .as_ref()
        .and_then(|root| root.get("server")?.get("listen"))
        .is_some();
    let servers = parsed.sources.iter();
    for source in servers.filter(|source| source.section == MCP_SERVERS) {
        let url = source.located().get("url");
        check(url, &|url| is_written && is_own_mcp_url(url, listen));
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::finding_lines;

    fn own_address_findings(text: &str) -> Vec<String> {
        let mut found = finding_lines(text, &[]);
        found.retain(|line| line.contains("own-address") || line.starts_with("error"));
        found
    }

    /// The findings for one tool, one agent and one server with this URL.
    fn findings_for_url(listen: &str, url: &str, more: &str) -> Vec<String> {
        own_address_findings(&format!(
            "{listen}tools:\n  t: {{kind: http, description: Asks., request: {{url: '{url}/x'{more}}}}}\n  \
             a: {{kind: agent, description: Thinks., system: Think., model: {{base_url: '{url}/v1', name: m}}}}\n\
             mcp_servers:\n  s: {{url: '{url}/other'}}\n"
        ))
    }

    #[test]
    fn own_urls_are_found_in_all_entries() {
        let all = [
            "warning own-address tools.t.request.url 3",
            "warning own-address tools.a.model.base_url 4",
            "warning own-address mcp_servers.s.url 6",
        ];
        let listen = "server: {listen: '127.0.0.1:7412'}\n";
        let host = rustix::system::uname()
            .nodename()
            .to_string_lossy()
            .into_owned();
        for url in [
            "http://127.0.0.1:7412",
            "http://localhost:7412",
            "https://[::1]:7412",
            &format!("http://{host}:7412"),
        ] {
            assert_eq!(
                findings_for_url(listen, url, ", allow_private: true"),
                all,
                "{url}"
            );
        }
        // Loading reports that the tool may not reach the address.
        assert_eq!(
            findings_for_url(listen, "http://127.0.0.1:7412", ""),
            all[1..]
        );
        for url in [
            "http://127.0.0.1:7413",
            "http://198.51.100.1:7412",
            "http://crib.example:7412",
        ] {
            assert_eq!(
                findings_for_url(listen, url, ", allow_private: true"),
                [""; 0],
                "{url}"
            );
        }
        assert_eq!(
            findings_for_url(
                "server: {listen: '127.0.0.1:0'}\n",
                "http://127.0.0.1:7411",
                ", allow_private: true"
            ),
            [""; 0]
        );
        // The default listen address.
        assert_eq!(
            findings_for_url("", "http://127.0.0.1:7411", ", allow_private: true").len(),
            3
        );
    }

    #[test]
    fn own_mcp_route_is_reported_once() {
        let server = "mcp_servers:\n  s: {url: 'http://127.0.0.1:7411/mcp'}\n";
        assert_eq!(
            own_address_findings(server),
            ["warning own-address mcp_servers.s.url 2"]
        );
        let listen = "server: {listen: '127.0.0.1:7411'}\n";
        assert_eq!(
            own_address_findings(&format!("{listen}{server}")),
            ["error invalid mcp_servers.s.url 3"]
        );
    }
}
