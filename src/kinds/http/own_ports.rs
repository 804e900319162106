//! Knows the ports at which this service listens, so that no tool calls the service itself. Such a
//! call would bypass the rules for callers, and calls could loop.

use std::net::{IpAddr, UdpSocket};
use std::sync::Arc;

use arc_swap::ArcSwap;
use url::{Host, Url};

/// The ports at which this service listens. All clones share one list, because the ports become
/// known only after the tools are built.
///
/// A port counts at every address of this machine, not only at the address to which the service is
/// bound. The operator may forward the port from another address. And a tool should not be able to
/// find out at which addresses `0.0.0.0` answers.
#[derive(Debug, Clone, Default)]
pub struct OwnPorts(Arc<ArcSwap<Vec<u16>>>);

impl OwnPorts {
    /// Adds a port at which the service listens.
    pub fn add(&self, port: u16) {
        self.0.rcu(|ports| {
            let mut ports = Vec::clone(ports);
            ports.push(port);
            ports
        });
    }

    /// Whether the service listens at this port.
    pub(crate) fn contains(&self, port: u16) -> bool {
        self.0.load().contains(&port)
    }
}

/// Whether packets to the address stay on this machine.
///
/// The system can tell: a socket can be bound only to a local address. Binding sends no packet.
/// Some systems also bind sockets to foreign addresses (Linux with `net.ipv4.ip_nonlocal_bind`).
/// There, every address counts as local.
pub(super) fn is_local_address(address: IpAddr) -> bool {
    let address = address.to_canonical();
    // A connection to the unspecified address is a connection to this machine.
    if address.is_loopback() || address.is_unspecified() {
        return true;
    }
    match UdpSocket::bind((address, 0)) {
        Ok(_) => true,
        // Any other error tells nothing about the address, so it counts as local.
        Err(error) => error.kind() != std::io::ErrorKind::AddrNotAvailable,
    }
}

/// Whether every resolver knows the name as this machine (RFC 6761, section 6.3).
pub(super) fn is_localhost(name: &str) -> bool {
    let name = name.strip_suffix('.').unwrap_or(name);
    name == "localhost" || name.ends_with(".localhost")
}

/// Whether the name is the host name of this machine. Sends no DNS request.
pub(super) fn is_own_host_name(name: &str) -> bool {
    is_same_host_name(name, &rustix::system::uname().nodename().to_string_lossy())
}

/// A name without a dot is compared with the first label of the full name.
fn is_same_host_name(name: &str, own: &str) -> bool {
    let name = name.trim_end_matches('.');
    let own = if name.contains('.') {
        own
    } else {
        own.split('.').next().unwrap_or_default()
    };
    !own.is_empty() && name.eq_ignore_ascii_case(own)
}

/// Whether a URL leads to this machine, as far as its text and the kernel tell. Sends no DNS
/// request.
pub(crate) fn points_to_this_machine(url: &Url) -> bool {
    match url.host() {
        Some(Host::Domain(name)) => is_localhost(name) || is_own_host_name(name),
        Some(Host::Ipv4(address)) => is_local_address(address.into()),
        Some(Host::Ipv6(address)) => is_local_address(address.into()),
        None => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn local_addresses_are_recognized() {
        for local in [
            "127.0.0.1",
            "127.8.9.10",
            "::1",
            "0.0.0.0",
            "::",
            "::ffff:127.0.0.1",
            "::ffff:0.0.0.0",
        ] {
            assert!(is_local_address(local.parse().unwrap()), "{local}");
        }
        // The local address of packets to other machines. Connecting a UDP socket sends no packet.
        let socket = UdpSocket::bind("0.0.0.0:0").unwrap();
        if socket.connect("198.51.100.1:9").is_ok() {
            assert!(is_local_address(socket.local_addr().unwrap().ip()));
        }
        assert!(
            !is_local_address("198.51.100.1".parse().unwrap()),
            "documentation"
        );
    }

    #[test]
    fn own_host_names_are_recognized() {
        for (name, own, is_own) in [
            ("box", "box", true),
            ("BOX.", "box", true),
            ("box", "box.example.com", true),
            ("box.example.com", "Box.Example.Com", true),
            ("box.example.com", "box", false),
            ("box.example.org", "box.example.com", false),
            ("", "", false),
            ("example", "box.example.com", false),
        ] {
            assert_eq!(is_same_host_name(name, own), is_own, "{name} {own}");
        }
    }

    #[test]
    fn clones_share_their_ports() {
        let ports = OwnPorts::default();
        let clone = ports.clone();
        assert!(!clone.contains(7411));
        ports.add(7411);
        ports.add(7412);
        assert!(clone.contains(7411) && clone.contains(7412) && !clone.contains(7413));
    }
}
