//! The table of made-up addresses and their names.

use std::collections::HashMap;
use std::net::{IpAddr, Ipv4Addr};

/// The first address of the network for benchmark tests (RFC 2544), 198.18.0.0/15, which no host
/// has.
const FIRST: u32 = u32::from_be_bytes([198, 18, 0, 0]);
const PREFIX: u32 = 15;

/// The maximum number of names that get an address in a run.
const NAMES_MAX: usize = 16_384;

/// The names that commands looked up, by address.
#[derive(Debug, Default)]
pub(super) struct NameTable {
    names: Vec<String>,
    indices: HashMap<String, usize>,
}

impl NameTable {
    /// Returns the address of a name. `None`: there are too many names.
    pub(super) fn address_of(&mut self, name: &str) -> Option<Ipv4Addr> {
        let index = match self.indices.get(name) {
            Some(index) => *index,
            None if self.names.len() < NAMES_MAX => {
                self.names.push(name.to_owned());
                self.indices.insert(name.to_owned(), self.names.len() - 1);
                self.names.len() - 1
            }
            None => return None,
        };
        u32::try_from(index).ok().map(|index| Ipv4Addr::from(FIRST + 1 + index))
    }

    /// Returns the name of an address. `None`: it is not made up, or was not given out.
    pub(super) fn name_of(&self, address: IpAddr) -> Option<&str> {
        let IpAddr::V4(address) = address else { return None };
        let index = u32::from(address).checked_sub(FIRST + 1)?;
        self.names.get(usize::try_from(index).ok()?).map(String::as_str)
    }
}

/// True if an address is in the network of made-up ones.
pub(super) fn is_made_up(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(address) => (u32::from(address) ^ FIRST) >> (32 - PREFIX) == 0,
        IpAddr::V6(_) => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_name_has_an_address_of_its_own_until_there_are_too_many() {
        let mut table = NameTable::default();
        let first = table.address_of("a.example").expect("there is room");
        assert_eq!(first, Ipv4Addr::new(198, 18, 0, 1));
        assert_eq!(table.address_of("a.example"), Some(first));
        for number in 1..NAMES_MAX {
            let name = format!("{number}.example");
            let address = table.address_of(&name).expect("there is room").into();
            assert!(is_made_up(address), "{address}");
            assert_eq!(table.name_of(address), Some(name.as_str()));
        }
        assert_eq!(table.address_of("more.example"), None);
        assert_eq!(table.address_of("a.example"), Some(first));
        for other in ["198.18.0.0", "198.17.255.255", "198.19.255.255", "::1", "0.0.0.0"] {
            assert_eq!(table.name_of(other.parse().expect("an address")), None, "{other}");
        }
    }

    #[test]
    fn the_network_of_made_up_addresses_has_its_bounds() {
        for (address, is_in) in [
            ("198.17.255.255", false),
            ("198.18.0.0", true),
            ("198.19.255.255", true),
            ("198.20.0.0", false),
            ("::ffff:198.18.0.1", false),
        ] {
            assert_eq!(is_made_up(address.parse().expect("an address")), is_in, "{address}");
        }
    }
}
