//! Decides which addresses a delivery may go to. Handles addresses, not names.
//!
//! A user who registers an endpoint chooses an address that this service connects to from inside
//! the operator's network. So only addresses of the public internet are allowed, without those of
//! this machine itself, and subnets that the operator lists. The denied ranges are those that IANA's registries of special-purpose
//! addresses do not call globally reachable (iana.org/assignments/iana-ipv4-special-registry and
//! iana-ipv6-special-registry, RFC 6890), and a few that are reachable but lead to another
//! destination than the address suggests. In IPv6, only the block that IANA assigns for global
//! unicast is allowed (iana.org/assignments/ipv6-address-space).

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, UdpSocket};

use ipnet::{IpNet, Ipv4Net, Ipv6Net};

/// Denied IPv4 ranges, each with a description.
const DENIED_V4: [(Ipv4Net, &str); 17] = [
    (v4([0, 0, 0, 0], 8), "this network (RFC 791, section 3.2)"),
    (v4([10, 0, 0, 0], 8), "private (RFC 1918)"),
    (v4([100, 64, 0, 0], 10), "shared by carriers (RFC 6598)"),
    (v4([127, 0, 0, 0], 8), "loopback (RFC 1122, section 3.2.1.3)"),
    (
        v4([168, 63, 129, 16], 32),
        "services for virtual machines (learn.microsoft.com: 168.63.129.16)",
    ),
    (v4([169, 254, 0, 0], 16), "link-local, metadata of clouds (RFC 3927)"),
    (v4([172, 16, 0, 0], 12), "private (RFC 1918)"),
    (v4([192, 0, 0, 0], 24), "protocol assignments (RFC 6890, section 2.1)"),
    (v4([192, 0, 2, 0], 24), "documentation (RFC 5737)"),
    (v4([192, 88, 99, 0], 24), "relays from IPv6 (RFC 7526)"),
    (v4([192, 168, 0, 0], 16), "private (RFC 1918)"),
    (v4([198, 18, 0, 0], 15), "benchmarks (RFC 2544)"),
    (v4([198, 51, 100, 0], 24), "documentation (RFC 5737)"),
    (v4([203, 0, 113, 0], 24), "documentation (RFC 5737)"),
    (v4([224, 0, 0, 0], 4), "multicast (RFC 5771)"),
    (v4([240, 0, 0, 0], 4), "reserved (RFC 1112, section 4)"),
    (v4([255, 255, 255, 255], 32), "broadcast (RFC 8190)"),
];

/// The block from which global unicast IPv6 addresses are assigned (RFC 4291, section 2.4).
const GLOBAL_V6: Ipv6Net = v6([0x2000, 0, 0, 0, 0, 0, 0, 0], 3);

/// Denied IPv6 ranges within [`GLOBAL_V6`], each with a description.
const DENIED_V6: [(Ipv6Net, &str); 4] = [
    // Includes Teredo, 2001::/32 (RFC 4380), whose addresses embed an IPv4 address.
    (v6([0x2001, 0, 0, 0, 0, 0, 0, 0], 23), "protocol assignments, tunnels among them (RFC 2928)"),
    (v6([0x2001, 0xdb8, 0, 0, 0, 0, 0, 0], 32), "documentation (RFC 3849)"),
    (v6([0x2002, 0, 0, 0, 0, 0, 0, 0], 16), "6to4, which holds an IPv4 address (RFC 3056)"),
    (v6([0x3fff, 0, 0, 0, 0, 0, 0, 0], 20), "documentation (RFC 9637)"),
];

/// Ranges outside of [`GLOBAL_V6`] that have a description of their own for the error message.
const NAMED_V6: [(Ipv6Net, &str); 10] = [
    (v6([0, 0, 0, 0, 0, 0, 0, 0], 128), "unspecified (RFC 4291, section 2.5.2)"),
    (v6([0, 0, 0, 0, 0, 0, 0, 1], 128), "loopback (RFC 4291, section 2.5.3)"),
    (v6([0, 0, 0, 0, 0, 0, 0, 0], 96), "IPv4-compatible (RFC 4291, section 2.5.5.1)"),
    (v6([0, 0, 0, 0, 0xffff, 0, 0, 0], 96), "IPv4-translated (RFC 7915)"),
    (v6([0x64, 0xff9b, 1, 0, 0, 0, 0, 0], 48), "translation to IPv4 within a site (RFC 8215)"),
    (v6([0x100, 0, 0, 0, 0, 0, 0, 0], 64), "discard (RFC 6666)"),
    (v6([0xfc00, 0, 0, 0, 0, 0, 0, 0], 7), "unique local (RFC 4193)"),
    (v6([0xfe80, 0, 0, 0, 0, 0, 0, 0], 10), "link-local (RFC 4291, section 2.5.6)"),
    (v6([0xfec0, 0, 0, 0, 0, 0, 0, 0], 10), "site-local (RFC 3879)"),
    (v6([0xff00, 0, 0, 0, 0, 0, 0, 0], 8), "multicast (RFC 4291, section 2.7)"),
];

/// The prefix under which an IPv6-only network reaches the IPv4 internet (RFC 6052, section 2.1).
/// The resolvers of such a network return these addresses, so each is judged by the IPv4 address
/// that it embeds.
const NAT64: Ipv6Net = v6([0x64, 0xff9b, 0, 0, 0, 0, 0, 0], 96);

/// Returns a network for a table in this file, where all prefix lengths are valid.
const fn v4(address: [u8; 4], length: u8) -> Ipv4Net {
    let [a, b, c, d] = address;
    Ipv4Net::new_assert(Ipv4Addr::new(a, b, c, d), length)
}

/// Returns a network for a table in this file, where all prefix lengths are valid.
const fn v6(address: [u16; 8], length: u8) -> Ipv6Net {
    let [a, b, c, d, e, f, g, h] = address;
    Ipv6Net::new_assert(Ipv6Addr::new(a, b, c, d, e, f, g, h), length)
}

/// A denied address. The message does not contain the address: a user who chooses names must not
/// learn how they resolve inside the operator's network.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("its address is not public: {range}")]
pub struct Denied {
    /// The address, for the operator.
    pub address: IpAddr,
    /// Description of the range that it is in.
    pub range: &'static str,
}

impl Denied {
    /// Returns the error for a name that leads to this address. It is the same for all names, so
    /// that nobody learns from it which ranges the operator's network uses.
    #[must_use]
    pub fn of_name(self) -> Self {
        Self { range: "a name must lead to public addresses only", ..self }
    }
}

/// Which addresses are allowed: public ones, and the operator's exceptions.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Policy {
    /// Subnets that are allowed although they are not public.
    pub allowed: Vec<IpNet>,
}

impl Policy {
    /// Checks whether deliveries may go to an address.
    pub fn check(&self, address: IpAddr) -> Result<(), Denied> {
        self.check_beside(address, is_own)
    }

    fn check_beside(&self, address: IpAddr, is_own: impl Fn(IpAddr) -> bool) -> Result<(), Denied> {
        // A connection to `::ffff:a.b.c.d` is one to `a.b.c.d` (RFC 4291, section 2.5.5.2).
        let address = address.to_canonical();
        let range = match address {
            IpAddr::V4(address) => denied_v4(address),
            IpAddr::V6(address) => denied_v6(address),
        };
        let range = range.or_else(|| is_own(address).then_some("an address of this machine"));
        match range {
            Some(range) if !self.allowed.iter().any(|subnet| subnet.contains(&address)) => {
                Err(Denied { address, range })
            }
            _ => Ok(()),
        }
    }
}

/// An address that no machine has (RFC 5737).
const NOBODYS: IpAddr = IpAddr::V4(Ipv4Addr::new(192, 0, 2, 1));

/// Whether an address belongs to this machine: services that are meant for its other parts may
/// listen on it. No packet is sent. Where the kernel lets processes use addresses that are not the
/// machine's (`net.ipv4.ip_nonlocal_bind`), this cannot be told.
fn is_own(address: IpAddr) -> bool {
    let may_use = |address: IpAddr| UdpSocket::bind((address, 0)).is_ok();
    may_use(address) && !may_use(NOBODYS)
}

fn denied_v4(address: Ipv4Addr) -> Option<&'static str> {
    DENIED_V4.iter().find(|(net, _)| net.contains(&address)).map(|(_, what)| *what)
}

fn denied_v6(address: Ipv6Addr) -> Option<&'static str> {
    if NAT64.contains(&address) {
        let [.., a, b, c, d] = address.octets();
        return denied_v4(Ipv4Addr::new(a, b, c, d));
    }
    let named = |table: &[(Ipv6Net, &'static str)]| {
        table.iter().find(|(net, _)| net.contains(&address)).map(|(_, what)| *what)
    };
    if GLOBAL_V6.contains(&address) {
        return named(&DENIED_V6);
    }
    named(&NAMED_V6).or(Some("not assigned for global use (RFC 4291, section 2.4)"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn denied(address: &str) -> bool {
        Policy::default().check(address.parse().unwrap()).is_err()
    }

    #[test]
    fn addresses_of_this_machine_are_denied_unless_they_are_allowed() {
        assert!(is_own([127, 0, 0, 1].into()));
        assert!(!is_own([198, 51, 100, 7].into()));
        let public: [IpAddr; 2] =
            [[8, 8, 8, 8].into(), "2620:fe::fe".parse::<Ipv6Addr>().unwrap().into()];
        for own in public {
            let check = |policy: &Policy| policy.check_beside(own, |address| address == own);
            let denied = check(&Policy::default()).unwrap_err();
            assert!(denied.to_string().contains("this machine"), "{denied}");
            assert_eq!(check(&Policy { allowed: vec![own.into()] }), Ok(()));
            assert_eq!(Policy::default().check_beside(own, |_| false), Ok(()));
        }
    }

    #[test]
    fn denied_ranges_end_exactly_at_their_bounds() {
        for (first, last, before, after) in [
            ("0.0.0.0", "0.255.255.255", None, Some("1.0.0.0")),
            ("10.0.0.0", "10.255.255.255", Some("9.255.255.255"), Some("11.0.0.0")),
            ("100.64.0.0", "100.127.255.255", Some("100.63.255.255"), Some("100.128.0.0")),
            ("127.0.0.0", "127.255.255.255", Some("126.255.255.255"), Some("128.0.0.0")),
            ("168.63.129.16", "168.63.129.16", Some("168.63.129.15"), Some("168.63.129.17")),
            ("169.254.0.0", "169.254.255.255", Some("169.253.255.255"), Some("169.255.0.0")),
            ("172.16.0.0", "172.31.255.255", Some("172.15.255.255"), Some("172.32.0.0")),
            ("192.0.0.0", "192.0.0.255", Some("191.255.255.255"), Some("192.0.1.0")),
            ("192.0.2.0", "192.0.2.255", Some("192.0.1.255"), Some("192.0.3.0")),
            ("192.88.99.0", "192.88.99.255", Some("192.88.98.255"), Some("192.88.100.0")),
            ("192.168.0.0", "192.168.255.255", Some("192.167.255.255"), Some("192.169.0.0")),
            ("198.18.0.0", "198.19.255.255", Some("198.17.255.255"), Some("198.20.0.0")),
            ("198.51.100.0", "198.51.100.255", Some("198.51.99.255"), Some("198.51.101.0")),
            ("203.0.113.0", "203.0.113.255", Some("203.0.112.255"), Some("203.0.114.0")),
            ("224.0.0.0", "255.255.255.255", Some("223.255.255.255"), None),
            ("::", "1fff:ffff:ffff:ffff:ffff:ffff:ffff:ffff", None, Some("2000::")),
            (
                "2001::",
                "2001:1ff:ffff:ffff:ffff:ffff:ffff:ffff",
                Some("2000:ffff::"),
                Some("2001:200::"),
            ),
            ("2001:db8::", "2001:db8:ffff:ffff::", Some("2001:db7::"), Some("2001:db9::")),
            ("2002::", "2002:ffff:ffff::", Some("2001:ffff::"), Some("2003::")),
            ("3fff::", "3fff:fff:ffff::", Some("3ffe::"), Some("3fff:1000::")),
            ("4000::", "ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff", Some("3fff:ffff::"), None),
        ] {
            assert!(denied(first) && denied(last), "{first} to {last}");
            assert!(![before, after].into_iter().flatten().any(denied), "around {first} to {last}");
        }
    }

    #[test]
    fn embedded_ipv4_addresses_are_checked() {
        for address in [
            "::ffff:127.0.0.1",
            "::ffff:10.0.0.1",
            "::ffff:169.254.169.254",
            "::127.0.0.1",
            "::8.8.8.8",
            "::ffff:0:8.8.8.8",
            "64:ff9b::127.0.0.1",
            "64:ff9b::169.254.169.254",
            "64:ff9b:1::8.8.8.8",
            "2002:7f00:1::",
            "2002:808:808::",
            "2001:0:7f00:1::",
            "2001:0:53aa:64c:0:7bff:f5f5:fffe",
            "fd00:ec2::254",
            "fe80::1",
            "fec0::1",
            "ff02::1",
            "100::1",
            "5f00::1",
        ] {
            assert!(denied(address), "{address}");
        }
        for address in ["::ffff:8.8.8.8", "64:ff9b::8.8.8.8", "2606:4700:4700::1111", "2a00:1450::"]
        {
            assert!(!denied(address), "{address}");
        }
    }

    #[test]
    fn the_operator_may_allow_subnets() {
        let allowed = ["10.1.0.0/16", "127.0.0.1/32", "fd00::/8"];
        let policy = Policy { allowed: allowed.map(|net| net.parse().unwrap()).to_vec() };
        let check = |address: &str| policy.check(address.parse().unwrap());
        for address in ["10.1.2.3", "::ffff:10.1.2.3", "127.0.0.1", "fd00::1", "8.8.8.8"] {
            assert_eq!(check(address), Ok(()), "{address}");
        }
        // The exception applies to the address itself, not to other addresses that embed it.
        for address in ["10.2.0.1", "127.0.0.2", "fc00::1", "64:ff9b::10.1.2.3", "2002:a01:203::"] {
            assert!(check(address).is_err(), "{address}");
        }
        let denied = check("::ffff:169.254.169.254").unwrap_err();
        assert_eq!(denied.address, IpAddr::from([169, 254, 169, 254]));
        let sentence = "its address is not public: link-local, metadata of clouds (RFC 3927)";
        assert_eq!(denied.to_string(), sentence);
    }
}
