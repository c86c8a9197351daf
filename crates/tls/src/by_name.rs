//! Chooses one of several certificates by the server name that a client asks for (SNI, RFC 6066
//! §3).

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;

use rustls::server::{ClientHello, ResolvesServerCert};
use rustls::sign::CertifiedKey;

use super::TlsIdentity;
use super::certificate;

/// Certificates by the names that they are valid for.
pub(super) struct ByName {
    exact: HashMap<String, Arc<CertifiedKey>>,
    /// Names without the first label, of certificates for `*.NAME`.
    wildcard: HashMap<String, Arc<CertifiedKey>>,
    /// Certificate for other names, and for clients that send none.
    first: Arc<CertifiedKey>,
}

impl ByName {
    /// Creates the table. If two certificates are valid for a name, the first one is used.
    pub(super) fn new(first: &TlsIdentity, more: &[TlsIdentity]) -> Self {
        let mut table = Self {
            exact: HashMap::new(),
            wildcard: HashMap::new(),
            first: first.certified(),
        };
        for identity in std::iter::once(first).chain(more) {
            for name in certificate::dns_names(identity.certificate()) {
                let name = name.to_ascii_lowercase();
                let (names, name) = match name.strip_prefix("*.") {
                    Some(parent) => (&mut table.wildcard, parent.to_owned()),
                    None => (&mut table.exact, name),
                };
                names.entry(name).or_insert_with(|| identity.certified());
            }
        }
        table
    }

    fn find(&self, name: &str) -> Option<&Arc<CertifiedKey>> {
        let name = name.trim_end_matches('.').to_ascii_lowercase();
        self.exact.get(&name).or_else(|| {
            let (_, parent) = name.split_once('.')?;
            self.wildcard.get(parent)
        })
    }
}

impl ResolvesServerCert for ByName {
    fn resolve(&self, hello: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        let named = hello.server_name().and_then(|name| self.find(name));
        Some(Arc::clone(named.unwrap_or(&self.first)))
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

    fn identity(names: &[&str]) -> TlsIdentity {
        let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
        let made = rcgen::generate_simple_self_signed(names).expect("a certificate");
        let (certificate, key) = (made.cert.pem(), made.signing_key.serialize_pem());
        TlsIdentity::from_pem("test", certificate.as_bytes(), key.as_bytes()).expect("an identity")
    }

    #[test]
    fn the_certificate_of_the_asked_name_is_used() {
        let shop = identity(&["shop.example"]);
        let wild = identity(&["*.shop.example", "other.example"]);
        let table = ByName::new(&shop, std::slice::from_ref(&wild));
        let is = |name: &str, of: &TlsIdentity| {
            let found = table.find(name).unwrap_or(&table.first);
            assert_eq!(found.cert, of.certified().cert, "{name}");
        };
        is("shop.example", &shop);
        is("SHOP.Example.", &shop);
        is("www.shop.example", &wild);
        is("other.example", &wild);
        is("a.b.shop.example", &shop);
        is("unknown.example", &shop);
        assert!(table.find("a.b.shop.example").is_none(), "one label only");
        assert!(table.find("example").is_none());
    }
}
