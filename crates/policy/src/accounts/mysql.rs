//! Selects a user's effective account among the rows of a MySQL or MariaDB server.

use std::cmp::Reverse;
use std::fmt;
use std::net::IpAddr;

use zeroize::Zeroizing;

#[cfg(test)]
mod tests;

/// Rows of one user, and of the anonymous user, at one server. Queried at each login, never kept.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MysqlAuthRecords {
    /// True for MariaDB, which uses other numbers for some errors.
    pub mariadb: bool,
    /// Host name, address, or both by which the server identifies connections of Evenkeel.
    ///
    /// Evenkeel logs in to the servers from its own address, so the effective row is the one that a
    /// server chooses for *Evenkeel*: `'app'@'10.0.0.%'` must match Evenkeel's address, not the
    /// client's. `allow_from` of `[service.auth]` limits the addresses of clients.
    pub from: Vec<String>,
    /// The rows, in any order.
    pub rows: Vec<MysqlAuthRecord>,
    /// The plugin of most accounts, which is also requested from users that do not exist.
    pub default_plugin: String,
}

/// One account.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct MysqlAuthRecord {
    /// Empty: the anonymous user.
    pub user: String,
    /// Host, with wildcards or a network.
    pub host: String,
    /// Authentication methods: each plugin alone is enough.
    pub methods: Vec<AuthMethod>,
    /// True after ACCOUNT LOCK.
    pub is_locked: bool,
    /// True if the password must be changed first.
    pub is_expired: bool,
    /// Requirements for the connection.
    pub requires: TlsRequirement,
    /// Global privileges and default role, as an opaque text. Accounts with different texts do not
    /// share connections, since a change does not apply to open ones.
    pub privileges_text: String,
}

/// REQUIRE of an account.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum TlsRequirement {
    /// NONE.
    #[default]
    Nothing,
    /// SSL.
    Tls,
    /// X509, or a CIPHER, which is not compared, or a certificate with these names.
    Certificate(RequiredNames),
}

/// Names that a certificate must have, in the format of servers (`X509_NAME_oneline`).
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct RequiredNames {
    /// SUBJECT; empty: any.
    pub subject: Vec<u8>,
    /// ISSUER; empty: any.
    pub issuer: Vec<u8>,
}

impl RequiredNames {
    /// Returns whether a certificate with these names meets the requirement.
    #[must_use]
    pub fn are_met_by(&self, subject: &[u8], issuer: &[u8]) -> bool {
        let fits = |required: &[u8], shown: &[u8]| required.is_empty() || required == shown;
        fits(&self.subject, subject) && fits(&self.issuer, issuer)
    }
}

/// A plugin and its stored credential. The latter is wiped on drop.
#[derive(Clone, PartialEq, Eq)]
pub struct AuthMethod {
    /// Name of the plugin at the server.
    pub plugin: String,
    /// `authentication_string`
    pub stored: Zeroizing<Vec<u8>>,
    /// MySQL's second password (RETAIN CURRENT PASSWORD) in the same form; empty: there is none.
    pub retained: Zeroizing<Vec<u8>>,
}

impl fmt::Debug for AuthMethod {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "AuthMethod({}, hidden)", self.plugin)
    }
}

impl MysqlAuthRecords {
    /// Returns whether the server resolves host names of connections.
    #[must_use]
    pub fn by_name(&self) -> bool {
        let first = self.from.first();
        first.is_some_and(|first| first.parse::<IpAddr>().is_err())
    }

    /// Returns the row that the server chooses for a user from Evenkeel's address: that of the most
    /// specific host; among equal ones, a named user's before the anonymous user's.
    #[must_use]
    pub fn chosen(&self) -> Option<&MysqlAuthRecord> {
        let fits = |row: &&MysqlAuthRecord| self.from.iter().any(|from| matches(&row.host, from));
        let mut fitting: Vec<_> = self.rows.iter().filter(fits).collect();
        // Stable: equal rows stay in the server's order.
        fitting.sort_by_key(|row| (Reverse(specificity(&row.host)), row.user.is_empty()));
        fitting.first().copied()
    }
}

/// Ranks hosts: literals before networks before patterns, which rank by their literal beginning.
fn specificity(host: &str) -> (u8, usize) {
    if let Some((_, mask)) = host.split_once('/') {
        let bits = match mask.parse::<IpAddr>() {
            Ok(IpAddr::V4(mask)) => mask.to_bits().count_ones() as usize,
            Ok(IpAddr::V6(mask)) => mask.to_bits().count_ones() as usize,
            Err(_) => mask.parse().unwrap_or_default(),
        };
        return (2, bits);
    }
    match host.find(['%', '_']) {
        _ if host.is_empty() => (0, 0),
        Some(0) => (0, 0),
        Some(at) => (1, at),
        None => (3, 0),
    }
}

/// Returns whether an account's host equals or includes a host name or an address.
fn matches(host: &str, from: &str) -> bool {
    match host.split_once('/') {
        Some((network, mask)) => is_within(network, mask, from).unwrap_or(false),
        None if host.is_empty() => true,
        None => {
            let (host, from) = (host.to_ascii_lowercase(), from.to_ascii_lowercase());
            is_like(host.as_bytes(), from.as_bytes())
        }
    }
}

/// Parses `10.1.0.0/255.255.0.0` or `10.1.0.0/16`.
fn is_within(network: &str, mask: &str, from: &str) -> Option<bool> {
    let network: IpAddr = network.parse().ok()?;
    let from: IpAddr = from.parse().ok()?;
    match (network, from, mask.parse::<IpAddr>()) {
        (IpAddr::V4(network), IpAddr::V4(from), Ok(IpAddr::V4(mask))) => {
            Some(from.to_bits() & mask.to_bits() == network.to_bits())
        }
        (_, _, Ok(_)) => None,
        (network, from, Err(_)) => {
            let net = ipnet::IpNet::new(network, mask.parse().ok()?).ok()?;
            Some(net.contains(&from))
        }
    }
}

/// Matches LIKE: `%` is any number of characters, `_` one, `\` takes the next literally.
fn is_like(pattern: &[u8], text: &[u8]) -> bool {
    let (mut at, mut seen) = (0, 0);
    // Position to resume from after a `%` that must take one more character.
    let mut retry: Option<(usize, usize)> = None;
    loop {
        let fits = match pattern.get(at) {
            Some(b'%') => {
                retry = Some((at + 1, seen));
                at += 1;
                continue;
            }
            Some(b'\\') if pattern.get(at + 1).is_some() => {
                let fits = pattern.get(at + 1) == text.get(seen);
                at += usize::from(fits);
                fits
            }
            Some(b'_') => seen < text.len(),
            Some(letter) => Some(letter) == text.get(seen),
            None if seen == text.len() => return true,
            None => false,
        };
        if fits {
            (at, seen) = (at + 1, seen + 1);
            continue;
        }
        match &mut retry {
            Some((after, from)) if *from < text.len() => {
                *from += 1;
                (at, seen) = (*after, *from);
            }
            _ => return false,
        }
    }
}
