//! Classifies IP addresses as public or private. Pure.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// IPv4 networks that are not on the public internet, with descriptions.
const PRIVATE_V4: [(Ipv4Addr, u32, &str); 16] = [
    (Ipv4Addr::UNSPECIFIED, 8, "this host"),
    (Ipv4Addr::new(10, 0, 0, 0), 8, "a private network"),
    (Ipv4Addr::new(100, 64, 0, 0), 10, "a carrier's inner network"),
    (Ipv4Addr::new(127, 0, 0, 0), 8, "this machine"),
    // Virtual machines of Azure get certificates and settings with secrets from it.
    (Ipv4Addr::new(168, 63, 129, 16), 32, "the host service of a cloud"),
    (Ipv4Addr::new(169, 254, 0, 0), 16, "the local link, where clouds keep credentials"),
    (Ipv4Addr::new(172, 16, 0, 0), 12, "a private network"),
    (Ipv4Addr::new(192, 0, 0, 0), 24, "a reserved network"),
    (Ipv4Addr::new(192, 0, 2, 0), 24, "a network for documentation"),
    (Ipv4Addr::new(192, 88, 99, 0), 24, "a reserved network"),
    (Ipv4Addr::new(192, 168, 0, 0), 16, "a private network"),
    (Ipv4Addr::new(198, 18, 0, 0), 15, "a network for tests"),
    (Ipv4Addr::new(198, 51, 100, 0), 24, "a network for documentation"),
    (Ipv4Addr::new(203, 0, 113, 0), 24, "a network for documentation"),
    (Ipv4Addr::new(224, 0, 0, 0), 4, "a multicast address"),
    (Ipv4Addr::new(240, 0, 0, 0), 4, "a reserved network"),
];

/// IPv6 networks in the range of global addresses that are not on the public internet.
const PRIVATE_V6: [(Ipv6Addr, u32, &str); 3] = [
    (Ipv6Addr::new(0x2001, 0, 0, 0, 0, 0, 0, 0), 23, "a reserved network"),
    (Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 0), 32, "a network for documentation"),
    (Ipv6Addr::new(0x3fff, 0, 0, 0, 0, 0, 0, 0), 20, "a network for documentation"),
];

/// The description of a private network, if the address is in one.
pub(in super::super) fn private_network(address: IpAddr) -> Option<&'static str> {
    match address {
        IpAddr::V4(address) => private_v4(address),
        IpAddr::V6(address) => private_v6(address),
    }
}

fn private_v4(address: Ipv4Addr) -> Option<&'static str> {
    let bits = u32::from(address);
    let within = |network: Ipv4Addr, length: u32| {
        (bits ^ u32::from(network)).checked_shr(32 - length) == Some(0)
    };
    let found = PRIVATE_V4.iter().find(|(network, length, _)| within(*network, *length));
    found.map(|(_, _, what)| *what)
}

fn private_v6(address: Ipv6Addr) -> Option<&'static str> {
    if address.is_loopback() {
        return Some("this machine");
    }
    if let Some(inner) = embedded_ipv4(address) {
        return private_v4(inner);
    }
    let bits = u128::from(address);
    let within = |network: Ipv6Addr, length: u32| {
        (bits ^ u128::from(network)).checked_shr(128 - length) == Some(0)
    };
    if !within(Ipv6Addr::new(0x2000, 0, 0, 0, 0, 0, 0, 0), 3) {
        return Some("not a global address");
    }
    let found = PRIVATE_V6.iter().find(|(network, length, _)| within(*network, *length));
    found.map(|(_, _, what)| *what)
}

/// The IPv4 address embedded in an IPv6 address: mapped, compatible, NAT64 or 6to4.
fn embedded_ipv4(address: Ipv6Addr) -> Option<Ipv4Addr> {
    let joined = |high: u16, low: u16| Ipv4Addr::from(u32::from(high) << 16 | u32::from(low));
    match address.segments() {
        [0, 0, 0, 0, 0, 0 | 0xffff, high, low]
        | [0, 0, 0, 0, 0xffff, 0, high, low]
        | [0x64, 0xff9b, 0, 0, 0, 0, high, low]
        | [0x2002, high, low, ..] => Some(joined(high, low)),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn is_private(address: &str) -> bool {
        private_network(address.parse().expect("an address")).is_some()
    }

    #[test]
    fn private_addresses_are_recognised_in_every_notation() {
        let addresses = "\
             0.0.0.0 0.1.2.3 10.0.0.1 100.64.0.1 100.127.255.255 127.0.0.1 127.255.255.254 \
             168.63.129.16 169.254.169.254 172.16.0.1 172.31.255.255 192.0.0.1 192.0.2.1 \
             192.168.1.1 198.18.0.1 198.19.255.255 224.0.0.1 239.255.255.255 240.0.0.1 \
             255.255.255.255 :: ::1 ::ffff:127.0.0.1 ::ffff:10.0.0.1 ::127.0.0.1 \
             ::ffff:0:127.0.0.1 64:ff9b::a9fe:a9fe 64:ff9b:1::1 2002:7f00:1:: 2002:a9fe:a9fe::1 \
             fc00::1 fd00:ec2::254 fe80::1 fec0::1 ff02::1 2001::1 2001:db8::1 100::1";
        for address in addresses.split_whitespace() {
            assert!(is_private(address), "{address}");
        }
    }

    #[test]
    fn the_open_internet_is_not_private() {
        let addresses = "\
             1.1.1.1 8.8.8.8 9.255.255.255 11.0.0.0 100.63.255.255 168.63.129.15 100.128.0.0 \
             126.255.255.255 128.0.0.0 169.253.0.1 172.15.255.255 172.32.0.0 192.167.255.255 \
             192.169.0.0 198.17.255.255 198.20.0.0 223.255.255.255 2606:4700::1111 2a00:1450::1 \
             64:ff9b::808:808 ::ffff:8.8.8.8 2002:808:808::1";
        for address in addresses.split_whitespace() {
            assert!(!is_private(address), "{address}");
        }
    }
}
