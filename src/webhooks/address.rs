//! Addresses that are not public: of this machine, of private networks, and those without a host.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// The range of an address that is not public; `None` for a public one. An IPv6 address that stands for
/// an IPv4 address is in the range of that.
pub(super) fn range(address: IpAddr) -> Option<&'static str> {
    match address {
        IpAddr::V4(v4) => range_v4(v4),
        IpAddr::V6(v6) => match embedded(v6) {
            Some(v4) => range_v4(v4),
            None => range_v6(v6),
        },
    }
}

fn range_v4(v4: Ipv4Addr) -> Option<&'static str> {
    let [a, b, c, _] = v4.octets();
    match () {
        () if v4.is_loopback() => Some("loopback"),
        () if v4.is_private() => Some("private"),
        // Also the metadata services of clouds.
        () if v4.is_link_local() => Some("link-local"),
        () if v4.is_multicast() || v4.is_broadcast() => Some("multicast"),
        () if a == 100 && (64..128).contains(&b) => Some("shared"),
        () if a == 0 || a >= 240 || v4.is_documentation() => Some("reserved"),
        () if a == 192 && b == 0 && c == 0 => Some("reserved"),
        () if a == 192 && b == 88 && c == 99 => Some("reserved"),
        () if a == 198 && (b == 18 || b == 19) => Some("reserved"),
        // The agent of a cloud's virtual machines.
        () if v4 == Ipv4Addr::new(168, 63, 129, 16) => Some("metadata"),
        () => None,
    }
}

fn range_v6(v6: Ipv6Addr) -> Option<&'static str> {
    match v6.segments() {
        _ if v6.is_loopback() => Some("loopback"),
        _ if v6.is_unique_local() => Some("private"),
        _ if v6.is_unicast_link_local() => Some("link-local"),
        _ if v6.is_multicast() => Some("multicast"),
        [0x64, 0xff9b, 1, ..] => Some("private"),
        // Assignments of protocols, with tunnels whose ends are hidden in the address.
        [0x2001, second, ..] if second < 0x200 || second == 0xdb8 => Some("reserved"),
        [0x3fff, second, ..] if second < 0x1000 => Some("reserved"),
        // All other public addresses begin with the bits 001.
        [first, ..] if first & 0xe000 == 0x2000 => None,
        _ => Some("reserved"),
    }
}

/// The IPv4 address that an IPv6 address stands for: mapped, compatible, by NAT64 or by 6to4.
fn embedded(v6: Ipv6Addr) -> Option<Ipv4Addr> {
    let of = |high: u16, low: u16| Ipv4Addr::from((u32::from(high) << 16) | u32::from(low));
    match v6.segments() {
        [0x64, 0xff9b, 0, 0, 0, 0, high, low] | [0x2002, high, low, ..] => Some(of(high, low)),
        [0, 0, 0, 0, 0, 0, 0, 0 | 1] => None,
        [0, 0, 0, 0, 0, 0 | 0xffff, high, low] => Some(of(high, low)),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn public_addresses_are_in_no_range_and_others_in_theirs() {
        for public in [
            "93.184.216.34",
            "1.1.1.1",
            "172.32.0.1",
            "2606:4700:4700::1111",
            "2001:4860:4860::8888",
            "64:ff9b::5db8:d822",
            "::ffff:93.184.216.34",
        ] {
            assert_eq!(range(public.parse().unwrap()), None, "{public}");
        }
        for (address, expected) in [
            ("127.0.0.1", "loopback"),
            ("127.255.255.254", "loopback"),
            ("10.1.2.3", "private"),
            ("172.16.0.1", "private"),
            ("192.168.0.1", "private"),
            ("169.254.169.254", "link-local"),
            ("100.100.100.200", "shared"),
            ("168.63.129.16", "metadata"),
            ("192.0.0.192", "reserved"),
            ("0.0.0.0", "reserved"),
            ("240.0.0.1", "reserved"),
            ("255.255.255.255", "multicast"),
            ("224.0.0.1", "multicast"),
            ("198.18.0.1", "reserved"),
            ("203.0.113.1", "reserved"),
            ("::1", "loopback"),
            ("::", "reserved"),
            ("::7f00:1", "loopback"),
            ("::ffff:10.0.0.1", "private"),
            ("64:ff9b::7f00:1", "loopback"),
            ("64:ff9b::a9fe:a9fe", "link-local"),
            ("64:ff9b:1::7f00:1", "private"),
            ("2002:7f00:1::", "loopback"),
            ("2002:a00:1::1", "private"),
            ("2001::1", "reserved"),
            ("2001:db8::1", "reserved"),
            ("3fff::1", "reserved"),
            ("fd00:ec2::254", "private"),
            ("fe80::1", "link-local"),
            ("fec0::1", "reserved"),
            ("100::1", "reserved"),
            ("ff02::1", "multicast"),
            ("5f00::1", "reserved"),
        ] {
            assert_eq!(range(address.parse().unwrap()), Some(expected), "{address}");
        }
    }
}
