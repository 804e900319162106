//! Where this service listens: no tool calls the service itself, since such a call passes all callers' rules and may go round
//! and round.

use std::net::{IpAddr, UdpSocket};
use std::sync::Arc;

use arc_swap::ArcSwap;
use url::{Host, Url};

use super::gate::is_localhost;

/// The ports at which this service listens. All clones are one: the ports are known only when tools are built already.
///
/// A port counts at every address of this machine, not only at the one that the service is bound to. The operator may forward it,
/// and whether `0.0.0.0` answers at an address is nothing that a tool should find out.
#[derive(Debug, Clone, Default)]
pub struct OwnPorts(Arc<ArcSwap<Vec<u16>>>);

impl OwnPorts {
    /// The service listens at this port, too.
    pub fn add(&self, port: u16) {
        self.0.rcu(|ports| {
            let mut ports = Vec::clone(ports);
            ports.push(port);
            ports
        });
    }

    /// Whether the service listens at this port.
    pub(super) fn has(&self, port: u16) -> bool {
        self.0.load().contains(&port)
    }
}

/// Whether what is sent to the address stays on this machine.
///
/// The system knows: a socket can be bound to local addresses only. It sends nothing. Where the system binds sockets to foreign
/// addresses too (Linux with `net.ipv4.ip_nonlocal_bind`), every address counts as local.
pub(super) fn is_of_this_machine(address: IpAddr) -> bool {
    let address = address.to_canonical();
    // To connect to the unspecified address is to connect to this machine.
    if address.is_loopback() || address.is_unspecified() {
        return true;
    }
    match UdpSocket::bind((address, 0)) {
        Ok(_) => true,
        // Any other failure says nothing of the address.
        Err(error) => error.kind() != std::io::ErrorKind::AddrNotAvailable,
    }
}

/// Whether a name is what the kernel calls this machine. Asks no DNS server.
pub(super) fn is_own_name(name: &str) -> bool {
    is_same_machine(name, &rustix::system::uname().nodename().to_string_lossy())
}

/// A name without a dot may stand for the first label of a full name.
fn is_same_machine(name: &str, own: &str) -> bool {
    let name = name.trim_end_matches('.');
    let own = if name.contains('.') { own } else { own.split('.').next().unwrap_or_default() };
    !own.is_empty() && name.eq_ignore_ascii_case(own)
}

/// Whether a URL leads to this machine, as far as its text and the kernel tell.
pub(crate) fn leads_here(url: &Url) -> bool {
    match url.host() {
        Some(Host::Domain(name)) => is_localhost(name) || is_own_name(name),
        Some(Host::Ipv4(address)) => is_of_this_machine(address.into()),
        Some(Host::Ipv6(address)) => is_of_this_machine(address.into()),
        None => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn local_addresses_are_told_from_others() {
        for local in ["127.0.0.1", "127.8.9.10", "::1", "0.0.0.0", "::", "::ffff:127.0.0.1", "::ffff:0.0.0.0"] {
            assert!(is_of_this_machine(local.parse().unwrap()), "{local}");
        }
        // The address that packets to others leave with; connecting a UDP socket sends none.
        let socket = UdpSocket::bind("0.0.0.0:0").unwrap();
        if socket.connect("198.51.100.1:9").is_ok() {
            assert!(is_of_this_machine(socket.local_addr().unwrap().ip()));
        }
        assert!(!is_of_this_machine("198.51.100.1".parse().unwrap()), "documentation");
    }

    #[test]
    fn own_names_are_told_from_others() {
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
            assert_eq!(is_same_machine(name, own), is_own, "{name} {own}");
        }
    }

    #[test]
    fn clones_share_their_ports() {
        let ports = OwnPorts::default();
        let clone = ports.clone();
        assert!(!clone.has(7411));
        ports.add(7411);
        ports.add(7412);
        assert!(clone.has(7411) && clone.has(7412) && !clone.has(7413));
    }
}
