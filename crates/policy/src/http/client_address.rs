//! Finds the address of the client among those that proxies have reported.

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

    /// Returns the address of the client: the last one in the chain that is not a trusted proxy's.
    ///
    /// `peer` is the sender of the connection, or of its PROXY header. `reported` are the addresses
    /// of `X-Forwarded-For` or `Forwarded` (RFC 7239 §5.2), the last one first; `None` is a text
    /// that is no address, such as `unknown`. The trusted proxy that reported such a text is then
    /// the client. Addresses that a stranger reported are not read.
    pub fn client(
        &self,
        peer: IpAddr,
        reported: impl IntoIterator<Item = Option<IpAddr>>,
    ) -> IpAddr {
        let mut client = peer.to_canonical();
        let mut reported = reported.into_iter();
        while self.contains(client) {
            match reported.next() {
                Some(Some(before)) => client = before.to_canonical(),
                Some(None) | None => break,
            }
        }
        client
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(peer: &str, reported: &[&str], expect: &str) {
        let networks = ["10.0.0.0/8", "192.0.2.7/32", "fd00::/8"];
        let networks = networks.map(|network| network.parse().expect("a network"));
        let trusted = TrustedProxies::new(networks.into());
        let address = |text: &str| text.parse::<IpAddr>().ok();
        let client = trusted.client(
            address(peer).expect("an address"),
            reported.iter().rev().map(|text| address(text)),
        );
        assert_eq!(Some(client), address(expect), "{peer}, {reported:?}");
    }

    #[test]
    fn a_stranger_is_the_client_whatever_it_reports() {
        check("203.0.113.9", &[], "203.0.113.9");
        check("203.0.113.9", &["10.0.0.1", "198.51.100.1"], "203.0.113.9");
        check("192.0.2.8", &["198.51.100.1"], "192.0.2.8");
    }

    #[test]
    fn the_last_address_that_is_no_proxy_is_the_client() {
        check("10.0.0.1", &["198.51.100.1"], "198.51.100.1");
        check(
            "10.0.0.1",
            &["6.6.6.6", "198.51.100.1", "10.0.0.2"],
            "198.51.100.1",
        );
        check("fd00::1", &["198.51.100.1", "192.0.2.7"], "198.51.100.1");
        check("fd00::1", &["2001:db8::5"], "2001:db8::5");
    }

    #[test]
    fn the_first_proxy_is_the_client_if_it_reports_none() {
        check("10.0.0.1", &[], "10.0.0.1");
        check("10.0.0.1", &["10.0.0.3", "10.0.0.2"], "10.0.0.3");
        check("10.0.0.1", &["198.51.100.1", "unknown"], "10.0.0.1");
        check(
            "10.0.0.1",
            &["198.51.100.1", "_hidden", "10.0.0.2"],
            "10.0.0.2",
        );
    }

    #[test]
    fn an_address_of_ipv4_is_the_same_in_its_form_of_ipv6() {
        check("::ffff:10.0.0.1", &["::ffff:198.51.100.1"], "198.51.100.1");
        check("::ffff:203.0.113.9", &["198.51.100.1"], "203.0.113.9");
        let trusted = TrustedProxies::new(vec!["10.0.0.0/8".parse().expect("a network")]);
        assert!(trusted.contains("::ffff:10.0.0.1".parse().expect("an address")));
    }
}
