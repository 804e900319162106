//! Finds MCP servers of a manifest that are this service itself. Its tools would be listed as its
//! own again, more of them with each listing.

use std::net::IpAddr;

use url::{Host, Url};

use super::Manifest;
use crate::sources::SourceSettings;
use crate::sources::mcp::Transport;

/// The route of the service's own MCP server.
const MCP_ROUTE: &str = "/mcp";

/// The servers of a manifest that are the service listening at `listen`, each with a message about
/// it.
pub(crate) fn self_references<'m>(
    manifest: &'m Manifest,
    listen: &'m str,
) -> impl Iterator<Item = (&'m str, String)> {
    manifest.sources.iter().filter_map(move |source| {
        let SourceSettings::Mcp(server) = &source.settings else { return None };
        let Transport::Url { url, .. } = &server.transport else { return None };
        let name = source.name();
        let message = format!(
            "this is the service itself, which listens at {listen}: each listing would add its own tools again, as \
             `{name}_…`; leave the server out, or write the URL of another server"
        );
        is_own_mcp_url(url, listen).then_some((name, message))
    })
}

/// Whether a URL leads to our route at the address of the service, as far as the text of the URL
/// shows that.
pub(super) fn is_own_mcp_url(url: &Url, listen: &str) -> bool {
    let Some((host, port)) = listen.rsplit_once(':') else {
        return false;
    };
    let is_port = port
        .parse()
        .is_ok_and(|port: u16| port != 0 && url.port_or_known_default() == Some(port));
    let is_route = url.scheme() == "http" && url.path().trim_end_matches('/') == MCP_ROUTE;
    is_port && is_route && is_local_host(url, host.trim_matches(['[', ']']).parse().ok())
}

/// Whether the URL's host is a loopback address on which the service accepts connections.
fn is_local_host(url: &Url, listens: Option<IpAddr>) -> bool {
    let url_ip: IpAddr = match url.host() {
        Some(Host::Domain(name)) => {
            let is_local = name == "localhost" || name.ends_with(".localhost");
            return is_local && listens.is_none_or(|ip| ip.is_loopback() || ip.is_unspecified());
        }
        Some(Host::Ipv4(ip)) => ip.into(),
        Some(Host::Ipv6(ip)) => ip.to_canonical(),
        None => return false,
    };
    match listens {
        _ if !url_ip.is_loopback() && !url_ip.is_unspecified() => false,
        Some(ip) if ip.is_loopback() => url_ip == ip || url_ip.is_unspecified(),
        // A listen address that is a host name may stand for any of them.
        other => other.is_none_or(|ip| ip.is_unspecified()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn own_url_needs_own_address_and_route() {
        for (url, listen, is_itself) in [
            ("http://127.0.0.1:7411/mcp", "127.0.0.1:7411", true),
            ("http://localhost:7411/mcp/", "127.0.0.1:7411", true),
            ("http://127.0.0.1:7411/mcp?a=b", "0.0.0.0:7411", true),
            ("http://[::1]:7411/mcp", "[::]:7411", true),
            ("http://[::ffff:127.0.0.1]:7411/mcp", "127.0.0.1:7411", true),
            ("http://0.0.0.0:7411/mcp", "127.0.0.1:7411", true),
            ("http://127.0.0.1/mcp", "localhost:80", true),
            ("http://127.0.0.1:7412/mcp", "127.0.0.1:7411", false),
            ("http://127.0.0.1:7411/other/mcp", "127.0.0.1:7411", false),
            ("https://127.0.0.1:7411/mcp", "127.0.0.1:7411", false),
            ("http://127.0.0.2:7411/mcp", "127.0.0.1:7411", false),
            ("http://[::1]:7411/mcp", "127.0.0.1:7411", false),
            ("http://127.0.0.1:7411/mcp", "192.168.0.7:7411", false),
            ("http://localhost:7411/mcp", "192.168.0.7:7411", false),
            ("http://crib.example:7411/mcp", "0.0.0.0:7411", false),
            ("http://127.0.0.1:7411/mcp", "127.0.0.1:0", false),
        ] {
            assert_eq!(
                is_own_mcp_url(&Url::parse(url).unwrap(), listen),
                is_itself,
                "{url} {listen}"
            );
        }
    }
}
