//! Networks of proxies that are trusted to report addresses.

use std::net::IpAddr;

use ipnet::IpNet;

/// Networks whose proxies are trusted to report addresses.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct TrustedProxies {
    networks: Vec<IpNet>,
}

impl TrustedProxies {
    /// Trusts proxies in these networks.
    pub fn new(networks: Vec<IpNet>) -> TrustedProxies {
        TrustedProxies { networks }
    }

    /// Returns whether a proxy at this address is trusted. An IPv4 address is the same in its
    /// IPv6 form (RFC 4291 §2.5.5.2).
    pub fn contains(&self, address: IpAddr) -> bool {
        let address = address.to_canonical();
        self.networks
            .iter()
            .any(|network| network.contains(&address))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn proxies_in_the_networks_are_trusted() {
        let networks = ["10.0.0.0/8", "192.0.2.7/32", "fd00::/8"];
        let networks = networks.map(|network| network.parse().expect("a network"));
        let trusted = TrustedProxies::new(networks.into());
        for (address, is_trusted) in [
            ("10.255.0.1", true),
            ("192.0.2.7", true),
            ("fd00::1", true),
            ("::ffff:10.0.0.1", true),
            ("11.0.0.1", false),
            ("192.0.2.8", false),
            ("fe80::1", false),
            ("::ffff:203.0.113.9", false),
            ("::10.0.0.1", false),
        ] {
            let parsed = address.parse().expect("an address");
            assert_eq!(trusted.contains(parsed), is_trusted, "{address}");
        }
    }
}
