//! Decides which addresses a request may reach: global unicast, and private networks only if the operator allows
//! them.
//!
//! A host name does not show to which address it leads. So the gate is the client's resolver. It resolves a name
//! once, requires that every address is permitted, and returns exactly these addresses: DNS rebinding has no second
//! lookup to change. Hosts that are written as addresses never reach a resolver; [`Gate::check`] checks those before
//! the request is sent.
//!
//! An IPv6 address that contains an IPv4 address may lead to the IPv4 address. So such forms are refused, or judged
//! by the IPv4 address. The gate cannot recognize the forms that a network chooses for itself: NAT64 under a prefix
//! of its own (RFC 6052), 6rd (RFC 5969) and MAP (RFC 7597) look like any global address.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use reqwest::dns::{Addrs, Name, Resolve, Resolving};
use url::{Host, Url};

use super::own_ports::{is_of_this_machine, is_own_name};
use Access::{Global, Never, Private};

/// What permits a request to a range of addresses.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Access {
    /// Always permitted.
    Global,
    /// Permitted with the operator's `allow_private`.
    Private,
    /// Never permitted.
    Never,
}

/// A row of the tables: network, prefix length, what permits it, and a description with its source.
type Range<A> = (A, u32, Access, &'static str);

/// The IANA IPv4 Special-Purpose Address Registry, and metadata addresses of clouds that are not in it. The first
/// match counts.
#[rustfmt::skip]
const V4: [Range<Ipv4Addr>; 19] = [
    (Ipv4Addr::new(0, 0, 0, 0), 8, Never, "\"this network\", RFC 791"),
    (Ipv4Addr::new(10, 0, 0, 0), 8, Private, "private, RFC 1918"),
    (Ipv4Addr::new(100, 100, 100, 200), 32, Never, "Alibaba Cloud's metadata service"),
    (Ipv4Addr::new(100, 64, 0, 0), 10, Private, "shared (CGNAT), RFC 6598"),
    (Ipv4Addr::new(127, 0, 0, 0), 8, Private, "loopback, RFC 1122"),
    (Ipv4Addr::new(168, 63, 129, 16), 32, Never, "Azure's platform service"),
    (Ipv4Addr::new(169, 254, 0, 0), 16, Never, "link-local and cloud metadata, RFC 3927"),
    (Ipv4Addr::new(172, 16, 0, 0), 12, Private, "private, RFC 1918"),
    (Ipv4Addr::new(192, 0, 0, 0), 24, Never, "protocol assignments, RFC 6890"),
    (Ipv4Addr::new(192, 0, 2, 0), 24, Never, "documentation, RFC 5737"),
    (Ipv4Addr::new(192, 88, 99, 0), 24, Never, "6to4 relays, RFC 7526"),
    (Ipv4Addr::new(192, 168, 0, 0), 16, Private, "private, RFC 1918"),
    (Ipv4Addr::new(198, 18, 0, 0), 15, Never, "benchmarking, RFC 2544"),
    (Ipv4Addr::new(198, 51, 100, 0), 24, Never, "documentation, RFC 5737"),
    (Ipv4Addr::new(203, 0, 113, 0), 24, Never, "documentation, RFC 5737"),
    (Ipv4Addr::new(224, 0, 0, 0), 4, Never, "multicast, RFC 5771"),
    (Ipv4Addr::BROADCAST, 32, Never, "broadcast, RFC 919"),
    (Ipv4Addr::new(240, 0, 0, 0), 4, Never, "reserved, RFC 1112"),
    // In the registry under the names of their owners, and still global: 192.31.196.0/24, 192.52.193.0/24,
    // 192.175.48.0/24.
    (Ipv4Addr::UNSPECIFIED, 0, Global, "global unicast"),
];

/// The IANA IPv6 Special-Purpose Address Registry. An address that contains an IPv4 address would bypass the table
/// above, so none of these forms is global. The first match counts.
#[rustfmt::skip]
const V6: [Range<Ipv6Addr>; 22] = [
    (Ipv6Addr::UNSPECIFIED, 128, Never, "unspecified, RFC 4291"),
    (Ipv6Addr::LOCALHOST, 128, Private, "loopback, RFC 4291"),
    (Ipv6Addr::new(0, 0, 0, 0, 0, 0xffff, 0, 0), 96, Private, "IPv4-mapped, RFC 4291"),
    (Ipv6Addr::UNSPECIFIED, 96, Never, "IPv4-compatible, RFC 4291"),
    (Ipv6Addr::new(0, 0, 0, 0, 0xffff, 0, 0, 0), 96, Never, "IPv4-translated, RFC 2765"),
    (Ipv6Addr::new(0x64, 0xff9b, 0, 0, 0, 0, 0, 0), 96, Never, "IPv4 behind NAT64, RFC 6052"),
    (Ipv6Addr::new(0x64, 0xff9b, 1, 0, 0, 0, 0, 0), 48, Never, "IPv4 behind NAT64, RFC 8215"),
    (Ipv6Addr::new(0x100, 0, 0, 0, 0, 0, 0, 0), 64, Never, "discard-only, RFC 6666"),
    (Ipv6Addr::new(0x2001, 0, 0, 0, 0, 0, 0, 0), 32, Never, "IPv4 in Teredo, RFC 4380"),
    (Ipv6Addr::new(0x2001, 0, 0, 0, 0, 0, 0, 0), 23, Never, "protocol assignments, RFC 2928"),
    (Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 0), 32, Never, "documentation, RFC 3849"),
    (Ipv6Addr::new(0x2002, 0, 0, 0, 0, 0, 0, 0), 16, Never, "IPv4 in 6to4, RFC 3056"),
    (Ipv6Addr::new(0x3fff, 0, 0, 0, 0, 0, 0, 0), 20, Never, "documentation, RFC 9637"),
    (Ipv6Addr::new(0x5f00, 0, 0, 0, 0, 0, 0, 0), 16, Never, "segment routing, RFC 9602"),
    (Ipv6Addr::new(0xfd00, 0xec2, 0, 0, 0, 0, 0, 0), 32, Never, "AWS's metadata services"),
    (Ipv6Addr::new(0xfd20, 0xce, 0, 0, 0, 0, 0, 0), 32, Never, "Google Cloud's metadata services"),
    (Ipv6Addr::new(0xfc00, 0, 0, 0, 0, 0, 0, 0), 7, Private, "unique local, RFC 4193"),
    (Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, 0), 10, Never, "link-local, RFC 4291"),
    (Ipv6Addr::new(0xfec0, 0, 0, 0, 0, 0, 0, 0), 10, Never, "site-local, RFC 3879"),
    (Ipv6Addr::new(0xff00, 0, 0, 0, 0, 0, 0, 0), 8, Never, "multicast, RFC 4291"),
    (Ipv6Addr::new(0x2000, 0, 0, 0, 0, 0, 0, 0), 3, Global, "global unicast, RFC 4291"),
    (Ipv6Addr::UNSPECIFIED, 0, Never, "not global unicast, RFC 4291"),
];

/// The description of an address of this machine, for requests to a port of this service.
const OWN: &str = "where this service itself listens";

/// Permits or refuses addresses.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct AddressPolicy {
    open: bool,
    allow_private: bool,
    /// Refuses every address of this machine.
    shuns_this_machine: bool,
    key: Option<&'static str>,
}

impl AddressPolicy {
    /// A gate for a tool. `key` is the manifest key that permits private networks; error messages name it.
    pub(crate) fn new(allow_private: bool, key: &'static str) -> Self {
        Self { open: false, allow_private, shuns_this_machine: false, key: Some(key) }
    }

    /// A gate that permits global addresses only, and that no manifest key opens.
    pub(crate) fn shut() -> Self {
        Self { open: false, allow_private: false, shuns_this_machine: false, key: None }
    }

    /// A gate that permits every address, for URLs that the operator wrote in full.
    pub(crate) fn open() -> Self {
        Self { open: true, ..Self::shut() }
    }

    /// The same gate, but it refuses the addresses of this machine. For requests to ports at which this service
    /// listens.
    pub(super) fn away(self) -> Self {
        Self { shuns_this_machine: true, ..self }
    }

    /// Checks the host of a URL if it is written as an address. Every spelling of an address is covered, because
    /// `url` has normalized it. The name `localhost` counts as an address (RFC 6761, section 6.3).
    pub(crate) fn check(&self, url: &Url) -> Result<(), Denied> {
        let address = match url.host() {
            Some(Host::Ipv4(v4)) => IpAddr::V4(v4),
            Some(Host::Ipv6(v6)) => IpAddr::V6(v6),
            Some(Host::Domain(name)) if is_localhost(name) => IpAddr::V4(Ipv4Addr::LOCALHOST),
            Some(Host::Domain(name)) if self.shuns_this_machine && is_own_name(name) => {
                return Err(Denied { host: name.to_owned(), address: None, what: OWN, key: None });
            }
            Some(Host::Domain(_)) | None => return Ok(()),
        };
        let host = url.host_str().unwrap_or_default();
        self.admit(host, vec![SocketAddr::new(address, 0)]).map(drop)
    }

    /// Returns the addresses of `host` if all of them are permitted.
    fn admit(&self, host: &str, found: Vec<SocketAddr>) -> Result<Vec<SocketAddr>, Denied> {
        let refused = |socket: &SocketAddr| Some((socket.ip(), self.refusal(socket.ip())?));
        let Some((address, (reach, what))) = found.iter().find_map(refused) else {
            return Ok(found);
        };
        let key = self.key.filter(|_| reach == Private);
        let host = host.to_owned();
        Err(Denied { host, address: Some(address), what, key })
    }

    fn refusal(&self, address: IpAddr) -> Option<(Access, &'static str)> {
        if self.shuns_this_machine && is_of_this_machine(address) {
            return Some((Never, OWN));
        }
        if self.open {
            return None;
        }
        let (reach, what) = match address {
            // With `allow_private`, an IPv4-mapped address is judged by its IPv4 address, because the system connects
            // to that address. Every other form that contains an IPv4 address stays refused.
            IpAddr::V6(v6) if self.allow_private && v6.to_ipv4_mapped().is_some() => {
                return self.refusal(address.to_canonical());
            }
            IpAddr::V4(v4) => reach_of(v4),
            IpAddr::V6(v6) if isatap(v6).is_some_and(|v4| reach_of(v4).0 != Global) => {
                (Never, "IPv4 in ISATAP, RFC 5214")
            }
            IpAddr::V6(v6) => first(&V6, |net, len| agree(v6.to_bits(), net.to_bits(), 128 - len)),
        };
        match reach {
            Global => None,
            Private if self.allow_private => None,
            Private | Never => Some((reach, what)),
        }
    }
}

fn reach_of(v4: Ipv4Addr) -> (Access, &'static str) {
    first(&V4, |net, len| agree(v4.to_bits().into(), net.to_bits().into(), 32 - len))
}

/// The IPv4 address in an ISATAP interface identifier (RFC 5214, section 6.1), which may follow any prefix. The
/// identifier is the bits `000000ug00000000 0101111011111110`, then the address.
fn isatap(v6: Ipv6Addr) -> Option<Ipv4Addr> {
    let [_, _, _, _, high, mark, a, b] = v6.segments();
    let is_isatap = high & !0x0300 == 0 && mark == 0x5efe;
    is_isatap.then(|| Ipv4Addr::from_bits(u32::from(a) << 16 | u32::from(b)))
}

pub(super) fn is_localhost(name: &str) -> bool {
    let name = name.strip_suffix('.').unwrap_or(name);
    name == "localhost" || name.ends_with(".localhost")
}

fn first<A: Copy>(table: &[Range<A>], holds: impl Fn(A, u32) -> bool) -> (Access, &'static str) {
    let row = table.iter().find(|(net, len, ..)| holds(*net, *len));
    row.map_or((Never, "unknown"), |(_, _, reach, what)| (*reach, *what))
}

/// Whether the addresses are equal, except for their last `rest` bits.
fn agree(one: u128, other: u128, rest: u32) -> bool {
    (one ^ other).checked_shr(rest).is_none_or(|difference| difference == 0)
}

impl Resolve for AddressPolicy {
    fn resolve(&self, name: Name) -> Resolving {
        let gate = *self;
        Box::pin(async move {
            let found = tokio::net::lookup_host((name.as_str(), 0)).await?.collect();
            let addrs: Addrs = Box::new(gate.admit(name.as_str(), found)?.into_iter());
            Ok(addrs)
        })
    }
}

/// The error when the gate refuses a host.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Denied {
    host: String,
    /// `None` if the host name itself stands for this machine.
    address: Option<IpAddr>,
    what: &'static str,
    key: Option<&'static str>,
}

impl fmt::Display for Denied {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { host, address, what, key } = self;
        match address {
            Some(address) => write!(f, "`{host}` is at {address} ({what})")?,
            None => write!(f, "`{host}` is this machine ({what})")?,
        }
        f.write_str(", which this tool may not reach")?;
        key.map_or(Ok(()), |key| write!(f, " unless the manifest says `{key}: true`"))
    }
}

impl std::error::Error for Denied {}

#[cfg(test)]
mod tests {
    use super::*;

    const SHUT: AddressPolicy = AddressPolicy {
        open: false,
        allow_private: false,
        shuns_this_machine: false,
        key: Some("request.allow_private"),
    };
    const OPEN: AddressPolicy = AddressPolicy { allow_private: true, ..SHUT };

    /// The first and last address of every range, whether `allow_private` permits it, and whether the addresses
    /// directly before and after it are global.
    #[rustfmt::skip]
    const RANGES: [(&str, &str, bool, bool, bool); 31] = [
        ("0.0.0.0", "0.255.255.255", false, false, true),
        ("10.0.0.0", "10.255.255.255", true, true, true),
        ("100.64.0.0", "100.127.255.255", true, true, true),
        ("100.100.100.200", "100.100.100.200", false, false, false),
        ("127.0.0.0", "127.255.255.255", true, true, true),
        ("168.63.129.16", "168.63.129.16", false, true, true),
        ("169.254.0.0", "169.254.255.255", false, true, true),
        ("172.16.0.0", "172.31.255.255", true, true, true),
        ("192.0.0.0", "192.0.0.255", false, true, true),
        ("192.0.2.0", "192.0.2.255", false, true, true),
        ("192.88.99.0", "192.88.99.255", false, true, true),
        ("192.168.0.0", "192.168.255.255", true, true, true),
        ("198.18.0.0", "198.19.255.255", false, true, true),
        ("198.51.100.0", "198.51.100.255", false, true, true),
        ("203.0.113.0", "203.0.113.255", false, true, true),
        ("224.0.0.0", "239.255.255.255", false, true, false),
        ("240.0.0.0", "255.255.255.255", false, false, false),
        ("::", "::", false, false, false),
        ("::1", "::1", true, false, false),
        ("::2", "::ffff:ffff", false, false, false),
        ("64:ff9b::", "64:ff9b::ffff:ffff", false, false, false),
        ("64:ff9b:1::", "64:ff9b:1:ffff:ffff:ffff:ffff:ffff", false, false, false),
        ("100::", "100::ffff:ffff:ffff:ffff", false, false, false),
        ("2001::", "2001:1ff:ffff:ffff:ffff:ffff:ffff:ffff", false, true, true),
        ("2001:db8::", "2001:db8:ffff:ffff:ffff:ffff:ffff:ffff", false, true, true),
        ("2002::", "2002:ffff:ffff:ffff:ffff:ffff:ffff:ffff", false, true, true),
        ("3fff::", "3fff:fff:ffff:ffff:ffff:ffff:ffff:ffff", false, true, true),
        ("fc00::", "fcff:ffff:ffff:ffff:ffff:ffff:ffff:ffff", true, false, false),
        ("fd00:ec2::", "fd00:ec2:ffff:ffff:ffff:ffff:ffff:ffff", false, false, false),
        ("fe80::", "fe80:ffff:ffff:ffff:ffff:ffff:ffff:ffff", false, false, false),
        ("fec0::", "ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff", false, false, false),
    ];

    fn bits(text: &str) -> (u128, bool) {
        match text.parse().unwrap() {
            IpAddr::V4(v4) => (v4.to_bits().into(), true),
            IpAddr::V6(v6) => (v6.to_bits(), false),
        }
    }

    fn address(bits: u128, v4: bool) -> IpAddr {
        if v4 { Ipv4Addr::from_bits(bits as u32).into() } else { Ipv6Addr::from_bits(bits).into() }
    }

    fn passes(gate: AddressPolicy, address: IpAddr) -> bool {
        gate.refusal(address).is_none()
    }

    #[test]
    fn every_range_is_denied_from_its_first_address_to_its_last_and_no_further() {
        for (first, last, opened, before, after) in RANGES {
            let ((first, v4), (last, _)) = (bits(first), bits(last));
            for inside in [first, last, first + (last - first) / 3] {
                let inside = address(inside, v4);
                assert!(!passes(SHUT, inside), "{inside}");
                assert_eq!(passes(OPEN, inside), opened, "{inside} with allow_private");
            }
            let end = if v4 { u32::MAX.into() } else { u128::MAX };
            if let Some(outside) = first.checked_sub(1) {
                assert_eq!(passes(SHUT, address(outside, v4)), before, "{}", address(outside, v4));
            }
            if last < end {
                assert_eq!(passes(SHUT, address(last + 1, v4)), after, "{}", address(last + 1, v4));
            }
        }
    }

    #[test]
    fn forms_that_carry_an_ipv4_address_do_not_reach_it() {
        for (v4, opened) in [("127.0.0.1", true), ("10.1.2.3", true), ("169.254.169.254", false), ("0.0.0.0", false)] {
            let v4: Ipv4Addr = v4.parse().unwrap();
            let mapped = IpAddr::from(v4.to_ipv6_mapped());
            assert_eq!((passes(SHUT, mapped), passes(OPEN, mapped)), (false, opened), "{mapped}");
            for (_, carrier) in carriers(v4) {
                let loopback = carrier.is_loopback();
                assert!(!passes(SHUT, carrier.into()) && (loopback || !passes(OPEN, carrier.into())), "{carrier}");
            }
        }
        assert!(!passes(SHUT, "::ffff:93.184.216.34".parse().unwrap()));
    }

    /// Every known form of an IPv6 address that contains an IPv4 address, except the mapped form.
    fn carriers(v4: Ipv4Addr) -> Vec<(&'static str, Ipv6Addr)> {
        let [a, b, c, d] = v4.octets().map(u16::from);
        let (high, low) = (a << 8 | b, c << 8 | d);
        vec![
            ("compatible", Ipv6Addr::new(0, 0, 0, 0, 0, 0, high, low)),
            ("translated", Ipv6Addr::new(0, 0, 0, 0, 0xffff, 0, high, low)),
            ("NAT64", Ipv6Addr::new(0x64, 0xff9b, 0, 0, 0, 0, high, low)),
            ("local NAT64, /96", Ipv6Addr::new(0x64, 0xff9b, 1, 0, 0, 0, high, low)),
            ("local NAT64, /64", Ipv6Addr::new(0x64, 0xff9b, 1, 7, a, b << 8 | c, d << 8, 0)),
            ("local NAT64, /56", Ipv6Addr::new(0x64, 0xff9b, 1, a, b, c << 8 | d, 0, 0)),
            ("local NAT64, /48", Ipv6Addr::new(0x64, 0xff9b, 1, high, c, d << 8, 0, 0)),
            ("6to4", Ipv6Addr::new(0x2002, high, low, 0, 0, 0, 0, 1)),
            ("Teredo's client", Ipv6Addr::new(0x2001, 0, 0x4136, 0xe378, 0x8000, 0x63bf, !high, !low)),
            ("Teredo's server", Ipv6Addr::new(0x2001, 0, high, low, 0x8000, 0x63bf, 0x3fff, 0xfdd2)),
            ("ISATAP", Ipv6Addr::new(0x2606, 0x4700, 0, 0, 0, 0x5efe, high, low)),
            ("ISATAP, universal", Ipv6Addr::new(0x2606, 0x4700, 1, 2, 0x200, 0x5efe, high, low)),
            ("ISATAP, group", Ipv6Addr::new(0x2606, 0x4700, 1, 2, 0x300, 0x5efe, high, low)),
            ("ISATAP, private", Ipv6Addr::new(0xfd12, 0x3456, 1, 2, 0x200, 0x5efe, high, low)),
            ("ISATAP, link-local", Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0x5efe, high, low)),
            ("ISATAP in 6to4", Ipv6Addr::new(0x2002, 0x101, 0x101, 0, 0, 0x5efe, high, low)),
        ]
    }

    proptest::proptest! {
        #[test]
        fn carriers_of_forbidden_addresses_are_refused(bits: u32, range in 0..V4.len() - 1) {
            let (net, len, reach, _) = V4[range];
            // An arbitrary address of the range.
            let v4 = Ipv4Addr::from_bits(net.to_bits() | bits.checked_shr(len).unwrap_or(0));
            proptest::prop_assert!(!passes(SHUT, v4.into()) && (reach == Private || !passes(OPEN, v4.into())));
            let mapped = IpAddr::from(v4.to_ipv6_mapped());
            proptest::prop_assert!(!passes(SHUT, mapped));
            proptest::prop_assert_eq!(passes(OPEN, mapped), passes(OPEN, v4.into()));
            for (form, carrier) in carriers(v4) {
                proptest::prop_assert!(!passes(SHUT, carrier.into()), "{} {}", form, carrier);
                // `::1` is loopback, which the operator may permit. It is also the IPv4-compatible form of 0.0.0.1,
                // which is refused.
                let is_open = passes(OPEN, carrier.into()) && !carrier.is_loopback();
                proptest::prop_assert!(!is_open, "{} {} with allow_private", form, carrier);
            }
        }
    }

    #[test]
    fn interface_identifiers_like_isatap_pass() {
        for text in [
            "2606:4700::5efe:5db8:d822",
            "2606:4700::200:5efe:5db8:d822",
            "2606:4700::400:5efe:7f00:1",
            "2606:4700::1:5efe:7f00:1",
            "2606:4700::5eff:7f00:1",
            "2606:4700:0:5efe:7f00:1:1:1",
        ] {
            assert!(passes(SHUT, text.parse().unwrap()), "{text}");
        }
    }

    #[test]
    fn own_ports_close_this_machine() {
        for gate in [OPEN.away(), SHUT.away(), AddressPolicy::open().away()] {
            for host in
                ["127.0.0.1", "127.1.2.3", "[::1]", "[::ffff:127.0.0.1]", "localhost", "db.localhost", "2130706433"]
            {
                let url = Url::parse(&format!("http://{host}:7411/x")).unwrap();
                let denied = gate.check(&url).expect_err(host).to_string();
                assert!(
                    denied.ends_with("(where this service itself listens), which this tool may not reach"),
                    "{denied}"
                );
            }
            assert_eq!(gate.check(&Url::parse("http://93.184.216.34:7411/").unwrap()), Ok(()));
        }
    }

    #[test]
    fn ordinary_addresses_pass() {
        for text in ["93.184.216.34", "1.1.1.1", "192.31.196.1", "223.255.255.255", "2606:4700:4700::1111", "2a00::1"] {
            assert!(passes(SHUT, text.parse().unwrap()) && passes(OPEN, text.parse().unwrap()), "{text}");
        }
    }

    #[test]
    fn every_spelling_of_an_address_is_the_address() {
        for host in [
            "2130706433",
            "0177.1",
            "0x7f.1",
            "127.1",
            "0x7f000001",
            "017700000001",
            "127.0.0.1.",
            "127.0.0.1",
            "[::1]",
            "[0:0:0:0:0:0:0:1]",
            "[::ffff:127.0.0.1]",
            "[::FFFF:7f00:1]",
            "１２７.０.０.１",
            "127。0。0。1",
            "%31%32%37.1",
            "localhost",
            "LocalHost.",
            "db.localhost",
        ] {
            let url = Url::parse(&format!("http://{host}:8080/x")).unwrap();
            let said = SHUT.check(&url).expect_err(host).to_string();
            assert!(said.contains("unless the manifest says `request.allow_private: true`"), "{said}");
            assert_eq!(OPEN.check(&url), Ok(()), "{host}");
        }
        for host in [
            "0.0.0.0",
            "0",
            "[::]",
            "169.254.169.254",
            "0xa9fea9fe",
            "2852039166",
            "0251.0376.0251.0376",
            "[fd00:ec2::254]",
            "[::ffff:a9fe:a9fe]",
            "[64:ff9b::a9fe:a9fe]",
            "[2002:a9fe:a9fe::1]",
            "[fe80::1]",
        ] {
            let url = Url::parse(&format!("http://{host}/")).unwrap();
            assert!(SHUT.check(&url).is_err(), "{host}");
            let said = OPEN.check(&url).expect_err(host).to_string();
            assert!(said.ends_with("which this tool may not reach"), "{said}");
        }
        for unreadable in ["[fe80::1%25eth0]", "256.0.0.1", "1.2.3.4.5", "0x100000000"] {
            assert!(Url::parse(&format!("http://{unreadable}/")).is_err(), "{unreadable}");
        }
    }

    #[test]
    fn one_bad_answer_denies_the_name() {
        let mixed: Vec<SocketAddr> = vec!["93.184.216.34:0".parse().unwrap(), "[::1]:0".parse().unwrap()];
        let denied = SHUT.admit("two-faced.example", mixed.clone()).unwrap_err();
        assert_eq!((denied.host.as_str(), denied.address), ("two-faced.example", Some("::1".parse().unwrap())));
        assert_eq!(SHUT.admit("plain.example", mixed[..1].to_vec()), Ok(mixed[..1].to_vec()));
    }

    #[tokio::test]
    async fn names_are_judged_by_where_they_lead() {
        for name in ["localhost", "localhost.", "LOCALHOST"] {
            let Err(error) = SHUT.resolve(name.parse().unwrap()).await else { panic!("{name}") };
            // It is also correct if the system's resolver does not know the spelling.
            assert!(error.is::<Denied>() || error.is::<std::io::Error>(), "{error}");
        }
        assert!(OPEN.resolve("localhost".parse().unwrap()).await.is_ok());
    }
}
