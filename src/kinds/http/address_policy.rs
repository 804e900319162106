//! Decides which addresses a request may reach: global unicast, and private networks only if the
//! operator allows them.
//!
//! A host name does not show to which address it leads. So the policy is the client's resolver. It
//! resolves a name once, requires that every address is permitted, and returns exactly these
//! addresses: DNS rebinding has no second lookup to change. Hosts that are written as addresses
//! never reach a resolver; [`AddressPolicy::check_url`] checks those before the request is sent.
//!
//! An IPv6 address that contains an IPv4 address may lead to the IPv4 address. So such forms are
//! refused, or judged by the IPv4 address. The policy cannot recognize the forms that a network
//! chooses for itself: NAT64 under a prefix of its own (RFC 6052), 6rd (RFC 5969) and MAP (RFC
//! 7597) look like any global address.

use std::error::Error;
use std::fmt;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::task::{Context, Poll};

use futures_util::future::BoxFuture;
use hyper_util::client::legacy::connect::dns::Name;
use tower::Service;
use url::{Host, Url};

use super::own_ports::{is_local_address, is_localhost, is_own_host_name};
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
type AddressRange<A> = (A, u32, Access, &'static str);

/// The IANA IPv4 Special-Purpose Address Registry, and metadata addresses of clouds that are not in
/// it. The first match counts.
#[rustfmt::skip]
const V4_RANGES: [AddressRange<Ipv4Addr>; 19] = [
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
    // In the registry under the names of their owners, and still global: 192.31.196.0/24,
    // 192.52.193.0/24, 192.175.48.0/24.
    (Ipv4Addr::UNSPECIFIED, 0, Global, "global unicast"),
];

/// The IANA IPv6 Special-Purpose Address Registry. An address that contains an IPv4 address would
/// bypass the table above, so none of these forms is global. The first match counts.
#[rustfmt::skip]
const V6_RANGES: [AddressRange<Ipv6Addr>; 22] = [
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
const OWN_SERVICE: &str = "where this service itself listens";

/// The description of a public address, for requests with secrets over http.
const UNENCRYPTED: &str =
    "a public address, and http does not protect the secrets of the request: use https";

/// Permits or refuses addresses.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
pub(crate) struct AddressPolicy {
    allow_all: bool,
    allow_private: bool,
    /// Refuses every address of this machine.
    deny_this_machine: bool,
    /// Refuses global addresses, for requests with secrets over http.
    pub(super) deny_global: bool,
    allow_key: Option<&'static str>,
}

impl AddressPolicy {
    /// The policy of a tool. `key` is the manifest key that permits private networks; error
    /// messages name it.
    pub(crate) fn new(allow_private: bool, key: &'static str) -> Self {
        Self {
            allow_private,
            allow_key: Some(key),
            ..Self::deny_private()
        }
    }

    /// Permits global addresses only, and no manifest key changes that.
    pub(crate) fn deny_private() -> Self {
        Self::default()
    }

    /// Permits every address, for URLs that the operator wrote in full.
    pub(crate) fn allow_all() -> Self {
        Self {
            allow_all: true,
            ..Self::deny_private()
        }
    }

    /// Permits private addresses too, for URLs that the operator wrote in full and that carry
    /// secrets.
    pub(crate) fn allow_private() -> Self {
        Self {
            allow_private: true,
            ..Self::deny_private()
        }
    }

    /// Whether it permits private addresses.
    pub(super) fn allows_private(self) -> bool {
        self.allow_all || self.allow_private
    }

    /// The same policy, but it refuses the addresses of this machine. For requests to ports at
    /// which this service listens.
    pub(crate) fn denying_this_machine(self) -> Self {
        Self {
            deny_this_machine: true,
            ..self
        }
    }

    /// Checks the host of a URL if it is written as an address. Every spelling of an address is
    /// covered, because `url` has normalized it. The name `localhost` counts as an address (RFC
    /// 6761, section 6.3).
    pub(crate) fn check_url(&self, url: &Url) -> Result<(), AddressDenied> {
        let address = match url.host() {
            Some(Host::Ipv4(v4)) => IpAddr::V4(v4),
            Some(Host::Ipv6(v6)) => IpAddr::V6(v6),
            Some(Host::Domain(name)) if is_localhost(name) => IpAddr::V4(Ipv4Addr::LOCALHOST),
            Some(Host::Domain(name)) if self.deny_this_machine && is_own_host_name(name) => {
                return Err(AddressDenied {
                    host: name.to_owned(),
                    address: None,
                    description: OWN_SERVICE,
                    key: None,
                });
            }
            Some(Host::Domain(_)) | None => return Ok(()),
        };
        let host = url.host_str().unwrap_or_default();
        self.check_addresses(host, vec![SocketAddr::new(address, 0)])
            .map(drop)
    }

    /// Returns the addresses of `host` if all of them are permitted.
    pub(crate) fn check_addresses(
        &self,
        host: &str,
        addresses: Vec<SocketAddr>,
    ) -> Result<Vec<SocketAddr>, AddressDenied> {
        let find_denied = |socket: &SocketAddr| Some((socket.ip(), self.find_denial(socket.ip())?));
        let Some((address, (access, description))) = addresses.iter().find_map(find_denied) else {
            return Ok(addresses);
        };
        let key = self.allow_key.filter(|_| access == Private);
        let host = host.to_owned();
        Err(AddressDenied {
            host,
            address: Some(address),
            description,
            key,
        })
    }

    fn find_denial(&self, address: IpAddr) -> Option<(Access, &'static str)> {
        if self.deny_this_machine && is_local_address(address) {
            return Some((Never, OWN_SERVICE));
        }
        if self.allow_all {
            return None;
        }
        let (access, description) = match address {
            // With `allow_private`, an IPv4-mapped address is judged by its IPv4 address, because
            // the system connects to that address. Every other form that contains an IPv4 address
            // stays refused.
            IpAddr::V6(v6) if self.allow_private && v6.to_ipv4_mapped().is_some() => {
                return self.find_denial(address.to_canonical());
            }
            IpAddr::V4(v4) => v4_access(v4),
            IpAddr::V6(v6) if isatap_ipv4(v6).is_some_and(|v4| v4_access(v4).0 != Global) => {
                (Never, "IPv4 in ISATAP, RFC 5214")
            }
            IpAddr::V6(v6) => find_range(&V6_RANGES, |net, len| {
                has_same_prefix(v6.to_bits(), net.to_bits(), 128 - len)
            }),
        };
        match access {
            Global if self.deny_global => Some((Never, UNENCRYPTED)),
            Global => None,
            Private if self.allow_private => None,
            Private | Never => Some((access, description)),
        }
    }
}

fn v4_access(v4: Ipv4Addr) -> (Access, &'static str) {
    find_range(&V4_RANGES, |net, len| {
        has_same_prefix(v4.to_bits().into(), net.to_bits().into(), 32 - len)
    })
}

/// The IPv4 address in an ISATAP interface identifier (RFC 5214, section 6.1), which may follow any
/// prefix. The identifier is the bits `000000ug00000000 0101111011111110`, then the address.
fn isatap_ipv4(v6: Ipv6Addr) -> Option<Ipv4Addr> {
    let [_, _, _, _, high, mark, a, b] = v6.segments();
    let is_isatap = high & !0x0300 == 0 && mark == 0x5efe;
    is_isatap.then(|| Ipv4Addr::from_bits(u32::from(a) << 16 | u32::from(b)))
}

fn find_range<A: Copy>(
    table: &[AddressRange<A>],
    matches: impl Fn(A, u32) -> bool,
) -> (Access, &'static str) {
    let row = table.iter().find(|(net, len, ..)| matches(*net, *len));
    row.map_or((Never, "unknown"), |(_, _, access, description)| {
        (*access, *description)
    })
}

/// Whether the addresses are equal, except for their last `rest` bits.
fn has_same_prefix(one: u128, other: u128, rest: u32) -> bool {
    (one ^ other)
        .checked_shr(rest)
        .is_none_or(|difference| difference == 0)
}

impl Service<Name> for AddressPolicy {
    type Response = std::vec::IntoIter<SocketAddr>;
    type Error = Box<dyn Error + Send + Sync>;
    type Future = BoxFuture<'static, Result<Self::Response, Self::Error>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, name: Name) -> Self::Future {
        let policy = *self;
        Box::pin(async move {
            let looked_up = tokio::net::lookup_host((name.as_str(), 0)).await;
            let addresses = looked_up.map_err(LookupError)?.collect();
            let permitted = policy.check_addresses(name.as_str(), addresses)?;
            Ok(permitted.into_iter())
        })
    }
}

/// The error when a name does not resolve.
#[derive(Debug, thiserror::Error)]
#[error("the lookup failed")]
pub(super) struct LookupError(#[source] io::Error);

/// The error when the policy refuses a host.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct AddressDenied {
    host: String,
    /// `None` if the host name itself stands for this machine.
    address: Option<IpAddr>,
    description: &'static str,
    key: Option<&'static str>,
}

impl fmt::Display for AddressDenied {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (host, description) = (&self.host, self.description);
        match self.address {
            Some(address) => write!(f, "`{host}` is at {address} ({description})")?,
            None => write!(f, "`{host}` is this machine ({description})")?,
        }
        f.write_str(", which this tool may not reach")?;
        self.key.map_or(Ok(()), |key| {
            write!(f, " unless the manifest says `{key}: true`")
        })
    }
}

impl Error for AddressDenied {}

#[cfg(test)]
mod tests {
    use super::*;

    const DENY_PRIVATE: AddressPolicy = AddressPolicy {
        allow_all: false,
        allow_private: false,
        deny_this_machine: false,
        deny_global: false,
        allow_key: Some("request.allow_private"),
    };
    const ALLOW_PRIVATE: AddressPolicy = AddressPolicy {
        allow_private: true,
        ..DENY_PRIVATE
    };

    /// The first and last address of every range, whether `allow_private` permits it, and whether
    /// the addresses directly before and after it are global.
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
        if v4 {
            Ipv4Addr::from_bits(bits as u32).into()
        } else {
            Ipv6Addr::from_bits(bits).into()
        }
    }

    fn is_allowed(policy: AddressPolicy, address: IpAddr) -> bool {
        policy.find_denial(address).is_none()
    }

    #[test]
    fn ranges_are_denied_with_exact_bounds() {
        for (first, last, opened, before, after) in RANGES {
            let ((first, v4), (last, _)) = (bits(first), bits(last));
            for inside in [first, last, first + (last - first) / 3] {
                let inside = address(inside, v4);
                assert!(!is_allowed(DENY_PRIVATE, inside), "{inside}");
                assert_eq!(
                    is_allowed(ALLOW_PRIVATE, inside),
                    opened,
                    "{inside} with allow_private"
                );
            }
            let end = if v4 { u32::MAX.into() } else { u128::MAX };
            if let Some(outside) = first.checked_sub(1) {
                assert_eq!(
                    is_allowed(DENY_PRIVATE, address(outside, v4)),
                    before,
                    "{}",
                    address(outside, v4)
                );
            }
            if last < end {
                assert_eq!(
                    is_allowed(DENY_PRIVATE, address(last + 1, v4)),
                    after,
                    "{}",
                    address(last + 1, v4)
                );
            }
        }
    }

    #[test]
    fn embedded_ipv4_forms_are_denied() {
        for (v4, opened) in [
            ("127.0.0.1", true),
            ("10.1.2.3", true),
            ("169.254.169.254", false),
            ("0.0.0.0", false),
        ] {
            let v4: Ipv4Addr = v4.parse().unwrap();
            let mapped = IpAddr::from(v4.to_ipv6_mapped());
            assert_eq!(
                (
                    is_allowed(DENY_PRIVATE, mapped),
                    is_allowed(ALLOW_PRIVATE, mapped)
                ),
                (false, opened),
                "{mapped}"
            );
            for (_, carrier) in embedded_forms(v4) {
                let loopback = carrier.is_loopback();
                assert!(
                    !is_allowed(DENY_PRIVATE, carrier.into())
                        && (loopback || !is_allowed(ALLOW_PRIVATE, carrier.into())),
                    "{carrier}"
                );
            }
        }
        assert!(!is_allowed(
            DENY_PRIVATE,
            "::ffff:93.184.216.34".parse().unwrap()
        ));
    }

    /// Every known form of an IPv6 address that contains an IPv4 address, except the mapped form.
    fn embedded_forms(v4: Ipv4Addr) -> Vec<(&'static str, Ipv6Addr)> {
        let [a, b, c, d] = v4.octets().map(u16::from);
        let (high, low) = (a << 8 | b, c << 8 | d);
        vec![
            ("compatible", Ipv6Addr::new(0, 0, 0, 0, 0, 0, high, low)),
            (
                "translated",
                Ipv6Addr::new(0, 0, 0, 0, 0xffff, 0, high, low),
            ),
            ("NAT64", Ipv6Addr::new(0x64, 0xff9b, 0, 0, 0, 0, high, low)),
            (
                "local NAT64, /96",
                Ipv6Addr::new(0x64, 0xff9b, 1, 0, 0, 0, high, low),
            ),
            (
                "local NAT64, /64",
                Ipv6Addr::new(0x64, 0xff9b, 1, 7, a, b << 8 | c, d << 8, 0),
            ),
            (
                "local NAT64, /56",
                Ipv6Addr::new(0x64, 0xff9b, 1, a, b, c << 8 | d, 0, 0),
            ),
            (
                "local NAT64, /48",
                Ipv6Addr::new(0x64, 0xff9b, 1, high, c, d << 8, 0, 0),
            ),
            ("6to4", Ipv6Addr::new(0x2002, high, low, 0, 0, 0, 0, 1)),
            (
                "Teredo's client",
                Ipv6Addr::new(0x2001, 0, 0x4136, 0xe378, 0x8000, 0x63bf, !high, !low),
            ),
            (
                "Teredo's server",
                Ipv6Addr::new(0x2001, 0, high, low, 0x8000, 0x63bf, 0x3fff, 0xfdd2),
            ),
            (
                "ISATAP",
                Ipv6Addr::new(0x2606, 0x4700, 0, 0, 0, 0x5efe, high, low),
            ),
            (
                "ISATAP, universal",
                Ipv6Addr::new(0x2606, 0x4700, 1, 2, 0x200, 0x5efe, high, low),
            ),
            (
                "ISATAP, group",
                Ipv6Addr::new(0x2606, 0x4700, 1, 2, 0x300, 0x5efe, high, low),
            ),
            (
                "ISATAP, private",
                Ipv6Addr::new(0xfd12, 0x3456, 1, 2, 0x200, 0x5efe, high, low),
            ),
            (
                "ISATAP, link-local",
                Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0x5efe, high, low),
            ),
            (
                "ISATAP in 6to4",
                Ipv6Addr::new(0x2002, 0x101, 0x101, 0, 0, 0x5efe, high, low),
            ),
        ]
    }

    proptest::proptest! {
        #[test]
        fn embedded_forbidden_addresses_are_denied(bits: u32, range in 0..V4_RANGES.len() - 1) {
            let (net, len, access, _) = V4_RANGES[range];
            // An arbitrary address of the range.
            let v4 = Ipv4Addr::from_bits(net.to_bits() | bits.checked_shr(len).unwrap_or(0));
            proptest::prop_assert!(!is_allowed(DENY_PRIVATE, v4.into()) && (access == Private || !is_allowed(ALLOW_PRIVATE, v4.into())));
            let mapped = IpAddr::from(v4.to_ipv6_mapped());
            proptest::prop_assert!(!is_allowed(DENY_PRIVATE, mapped));
            proptest::prop_assert_eq!(is_allowed(ALLOW_PRIVATE, mapped), is_allowed(ALLOW_PRIVATE, v4.into()));
            for (form, carrier) in embedded_forms(v4) {
                proptest::prop_assert!(!is_allowed(DENY_PRIVATE, carrier.into()), "{} {}", form, carrier);
                // `::1` is loopback, which the operator may permit. It is also the IPv4-compatible
                // form of 0.0.0.1, which is refused.
                let is_open = is_allowed(ALLOW_PRIVATE, carrier.into()) && !carrier.is_loopback();
                proptest::prop_assert!(!is_open, "{} {} with allow_private", form, carrier);
            }
        }
    }

    #[test]
    fn isatap_lookalikes_are_allowed() {
        for text in [
            "2606:4700::5efe:5db8:d822",
            "2606:4700::200:5efe:5db8:d822",
            "2606:4700::400:5efe:7f00:1",
            "2606:4700::1:5efe:7f00:1",
            "2606:4700::5eff:7f00:1",
            "2606:4700:0:5efe:7f00:1:1:1",
        ] {
            assert!(is_allowed(DENY_PRIVATE, text.parse().unwrap()), "{text}");
        }
    }

    #[test]
    fn own_ports_deny_this_machine() {
        for policy in [
            ALLOW_PRIVATE.denying_this_machine(),
            DENY_PRIVATE.denying_this_machine(),
            AddressPolicy::allow_all().denying_this_machine(),
        ] {
            for host in [
                "127.0.0.1",
                "127.1.2.3",
                "[::1]",
                "[::ffff:127.0.0.1]",
                "localhost",
                "db.localhost",
                "2130706433",
            ] {
                let url = Url::parse(&format!("http://{host}:7411/x")).unwrap();
                let denied = policy.check_url(&url).expect_err(host).to_string();
                assert!(
                    denied.ends_with(
                        "(where this service itself listens), which this tool may not reach"
                    ),
                    "{denied}"
                );
            }
            assert_eq!(
                policy.check_url(&Url::parse("http://93.184.216.34:7411/").unwrap()),
                Ok(())
            );
        }
    }

    #[test]
    fn global_addresses_are_allowed() {
        for text in [
            "93.184.216.34",
            "1.1.1.1",
            "192.31.196.1",
            "223.255.255.255",
            "2606:4700:4700::1111",
            "2a00::1",
        ] {
            assert!(
                is_allowed(DENY_PRIVATE, text.parse().unwrap())
                    && is_allowed(ALLOW_PRIVATE, text.parse().unwrap()),
                "{text}"
            );
        }
    }

    #[test]
    fn all_address_spellings_are_checked() {
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
            let error = DENY_PRIVATE.check_url(&url).expect_err(host).to_string();
            assert!(
                error.contains("unless the manifest says `request.allow_private: true`"),
                "{error}"
            );
            assert_eq!(ALLOW_PRIVATE.check_url(&url), Ok(()), "{host}");
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
            assert!(DENY_PRIVATE.check_url(&url).is_err(), "{host}");
            let error = ALLOW_PRIVATE.check_url(&url).expect_err(host).to_string();
            assert!(error.ends_with("which this tool may not reach"), "{error}");
        }
        for unreadable in ["[fe80::1%25eth0]", "256.0.0.1", "1.2.3.4.5", "0x100000000"] {
            assert!(
                Url::parse(&format!("http://{unreadable}/")).is_err(),
                "{unreadable}"
            );
        }
    }

    #[test]
    fn one_denied_address_denies_the_name() {
        let mixed: Vec<SocketAddr> = vec![
            "93.184.216.34:0".parse().unwrap(),
            "[::1]:0".parse().unwrap(),
        ];
        let denied = DENY_PRIVATE
            .check_addresses("two-faced.example", mixed.clone())
            .unwrap_err();
        assert_eq!(
            (denied.host.as_str(), denied.address),
            ("two-faced.example", Some("::1".parse().unwrap()))
        );
        assert_eq!(
            DENY_PRIVATE.check_addresses("plain.example", mixed[..1].to_vec()),
            Ok(mixed[..1].to_vec())
        );
    }

    #[tokio::test]
    async fn names_are_checked_by_resolved_addresses() {
        for name in ["localhost", "localhost.", "LOCALHOST"] {
            let mut policy = DENY_PRIVATE;
            let error = policy.call(name.parse().unwrap()).await.unwrap_err();
            // It is also correct if the system's resolver does not know the spelling.
            assert!(
                error.is::<AddressDenied>() || error.is::<LookupError>(),
                "{error}"
            );
        }
        let mut policy = ALLOW_PRIVATE;
        let permitted = policy.call("localhost".parse().unwrap()).await;
        assert!(permitted.is_ok(), "{permitted:?}");
    }
}
