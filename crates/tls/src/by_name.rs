//! Chooses one of several certificates by the server name that a client asks for (SNI, RFC 6066
//! §3).

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;

use rustls::server::{ClientHello, ResolvesServerCert};
use rustls::sign::CertifiedKey;

use super::certificate;
use super::{Authorities, TlsIdentity};

/// Certificate of a service that has several.
#[derive(Debug)]
pub struct NamedIdentity {
    /// Certificate and key.
    pub identity: TlsIdentity,
    /// Authorities of the client certificates that the names of this certificate demand. `None`:
    /// those of the service.
    pub client_ca: Option<Authorities>,
    /// Rank among certificates of one name.
    pub rank: Rank,
}

/// Rank among certificates of one name; the lowest one is used.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Rank {
    /// Ordered for the name.
    Ordered,
    /// Read from a file.
    File,
}

/// Certificates by the names that they are valid for.
pub(super) struct ByName {
    exact: HashMap<String, Entry>,
    /// Names without the first label, of certificates for `*.NAME`.
    wildcard: HashMap<String, Entry>,
    /// Certificate for other names, and for clients that send none. `None`: there is no
    /// certificate yet.
    other: Option<Entry>,
}

#[derive(Clone)]
struct Entry {
    certified: Arc<CertifiedKey>,
    /// Number of the certificate's `client_ca`, from 1 on. 0: that of the service.
    policy: usize,
}

impl ByName {
    /// Creates the table. If two certificates are valid for a name, one that demands client
    /// certificates is used before others, then that of the lowest rank, then the first one.
    pub(super) fn new(identities: &[NamedIdentity]) -> Self {
        let mut policies = 0;
        let mut entries: Vec<(&NamedIdentity, Entry)> = identities
            .iter()
            .map(|one| {
                policies += usize::from(one.client_ca.is_some());
                let entry = Entry {
                    certified: one.identity.certified(),
                    policy: one.client_ca.as_ref().map_or(0, |_| policies),
                };
                (one, entry)
            })
            .collect();
        let other = entries.first().map(|(_, first)| Entry {
            certified: Arc::clone(&first.certified),
            policy: 0,
        });
        let mut table = Self {
            exact: HashMap::new(),
            wildcard: HashMap::new(),
            other,
        };
        // The sort is stable.
        entries.sort_by_key(|(one, entry)| (entry.policy == 0, one.rank));
        for (one, entry) in &entries {
            table.add(&one.identity, entry);
        }
        table
    }

    fn add(&mut self, identity: &TlsIdentity, entry: &Entry) {
        for name in certificate::dns_names(identity.certificate()) {
            let name = name.to_ascii_lowercase();
            let (names, name) = match name.strip_prefix("*.") {
                Some(parent) => (&mut self.wildcard, parent.to_owned()),
                None => (&mut self.exact, name),
            };
            names.entry(name).or_insert_with(|| entry.clone());
        }
    }

    /// Returns the number of the policy of a name: 0 for that of the service, else the position
    /// among the certificates with own `client_ca`, from 1 on.
    pub(super) fn policy(&self, name: &str) -> usize {
        self.find(name).map_or(0, |entry| entry.policy)
    }

    fn find(&self, name: &str) -> Option<&Entry> {
        let name = name.trim_end_matches('.').to_ascii_lowercase();
        let found = self.exact.get(&name).or_else(|| {
            let (_, parent) = name.split_once('.')?;
            self.wildcard.get(parent)
        });
        found.or(self.other.as_ref())
    }
}

/// Chooses the certificate for a client that was accepted under a policy.
#[derive(Debug)]
pub(super) struct PolicyResolver {
    pub(super) names: Arc<ByName>,
    /// Number of the policy; see [`ByName::policy`].
    pub(super) policy: usize,
}

impl ResolvesServerCert for PolicyResolver {
    /// The policy was chosen by the name as read before. Should this reading differ, there is no
    /// certificate, and the handshake fails. The library asks also before it resumes a session.
    fn resolve(&self, hello: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        let entry = self.names.find(hello.server_name().unwrap_or_default())?;
        (entry.policy == self.policy).then(|| Arc::clone(&entry.certified))
    }
}

impl fmt::Debug for ByName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names = self.exact.len() + self.wildcard.len();
        f.debug_struct("ByName").field("names", &names).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn identity(names: &[&str], client_ca: bool) -> NamedIdentity {
        let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
        let made = rcgen::generate_simple_self_signed(names).expect("a certificate");
        let (certificate, key) = (made.cert.pem(), made.signing_key.serialize_pem());
        let identity = TlsIdentity::from_pem("test", certificate.as_bytes(), key.as_bytes());
        let client_ca =
            client_ca.then(|| Authorities::from_pem(certificate.as_bytes()).expect("a CA"));
        NamedIdentity {
            identity: identity.expect("an identity"),
            client_ca,
            rank: Rank::File,
        }
    }

    #[test]
    fn the_certificate_of_the_asked_name_is_used() {
        let identities = [
            identity(&["shop.example"], false),
            identity(&["*.shop.example", "other.example"], false),
        ];
        let table = ByName::new(&identities);
        let is = |name: &str, of: usize| {
            let found = &table.find(name).expect("a certificate").certified;
            assert_eq!(
                found.cert,
                identities[of].identity.certified().cert,
                "{name}"
            );
        };
        is("shop.example", 0);
        is("SHOP.Example.", 0);
        is("www.shop.example", 1);
        is("other.example", 1);
        is("unknown.example", 0);
        is("", 0);
        is("a.b.shop.example", 0);
        is("example", 0);
    }

    #[test]
    fn an_ordered_certificate_replaces_that_of_a_file_for_its_name_only() {
        let ordered = NamedIdentity {
            rank: Rank::Ordered,
            ..identity(&["shop.example"], false)
        };
        let file = identity(&["shop.example", "www.shop.example"], false);
        let identities = [file, ordered];
        let table = ByName::new(&identities);
        for (name, of) in [
            ("shop.example", 1),
            ("www.shop.example", 0),
            ("other.example", 0),
        ] {
            let found = &table.find(name).expect("a certificate").certified;
            let wanted = identities[of].identity.certified();
            assert_eq!(found.cert, wanted.cert, "{name}");
        }
        assert!(ByName::new(&[]).find("shop.example").is_none());
    }

    #[test]
    fn a_certificate_that_demands_client_certificates_comes_first() {
        let table = ByName::new(&[
            identity(&["shop.example", "admin.example"], false),
            identity(&["*.partner.example", "admin.example"], true),
            identity(&["plain.partner.example"], false),
            identity(&["bank.example"], true),
        ]);
        for (name, policy) in [
            ("shop.example", 0),
            ("admin.example", 1),
            ("ADMIN.EXAMPLE.", 1),
            ("x.partner.example", 1),
            ("plain.partner.example", 0),
            ("bank.example", 2),
            ("other.example", 0),
            ("", 0),
        ] {
            assert_eq!(table.policy(name), policy, "{name}");
        }
    }

    #[test]
    fn other_names_have_the_policy_of_the_service() {
        let table = ByName::new(&[identity(&["admin.example"], true)]);
        assert_eq!(table.policy("admin.example"), 1);
        assert_eq!(table.policy("unknown.example"), 0);
    }
}
