//! What a MySQL or MariaDB server has of a user: its account rows, and which of them counts.

use std::cmp::Reverse;
use std::fmt;
use std::net::IpAddr;

use zeroize::Zeroizing;

use crate::tls::Names;

#[cfg(test)]
mod tests;

/// The rows of one user, and of nobody, as one server has them. Asked for at each login, never
/// kept.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MysqlAuthRecords {
    /// Some errors have other numbers there.
    pub mariadb: bool,
    /// What the server takes us for when we connect: a host name, an address, or both.
    ///
    /// Evenkeel logs in to the servers from its own address, so the row that counts is the one that
    /// a server chooses for *us*: `'app'@'10.0.0.%'` must match Evenkeel's address, not the
    /// client's. Where clients may come from is said by `allow_from` of `[service.auth]`.
    pub from: Vec<String>,
    /// The rows, in whatever order.
    pub rows: Vec<MysqlAuthRecord>,
    /// The plugin that most accounts have: users who do not exist are asked by it.
    pub usual_plugin: String,
}

/// One account.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct MysqlAuthRecord {
    /// Empty: anybody.
    pub user: String,
    /// Where from, with wildcards or a network.
    pub host: String,
    /// How it may be proved: each plugin alone is enough.
    pub ways: Vec<AuthMethod>,
    /// ACCOUNT LOCK.
    pub is_locked: bool,
    /// The password must be changed first.
    pub is_expired: bool,
    /// What the connection must be like.
    pub requires: TlsRequirement,
    /// Its global privileges and default role, which connections of before do not get; in no
    /// particular form.
    pub rights: String,
}

/// REQUIRE of an account.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum TlsRequirement {
    /// NONE.
    #[default]
    Nothing,
    /// SSL.
    Tls,
    /// X509, or a CIPHER, which is not compared, or a certificate of these names.
    Certificate(Names),
}

/// A plugin, and what is stored for it. The latter is wiped when it is dropped.
#[derive(Clone, PartialEq, Eq)]
pub struct AuthMethod {
    /// As the server calls it.
    pub plugin: String,
    /// `authentication_string`
    pub stored: Zeroizing<Vec<u8>>,
    /// The same of MySQL's second password (RETAIN CURRENT PASSWORD); empty: there is none.
    pub retained: Zeroizing<Vec<u8>>,
}

impl fmt::Debug for AuthMethod {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Way({}, hidden)", self.plugin)
    }
}

impl MysqlAuthRecords {
    /// The server looks up the names of who connects.
    #[must_use]
    pub fn by_name(&self) -> bool {
        let first = self.from.first();
        first.is_some_and(|first| first.parse::<IpAddr>().is_err())
    }

    /// The row that the server chooses for a user who comes from where we come from: that of the
    /// most specific host; among equal ones that of the user before that of nobody.
    #[must_use]
    pub fn chosen(&self) -> Option<&MysqlAuthRecord> {
        let fits = |row: &&MysqlAuthRecord| self.from.iter().any(|from| matches(&row.host, from));
        let mut fitting: Vec<_> = self.rows.iter().filter(fits).collect();
        // Stable: what is equal stays in the server's order.
        fitting.sort_by_key(|row| (Reverse(specificity(&row.host)), row.user.is_empty()));
        fitting.first().copied()
    }
}

/// Literal hosts come before networks, these before patterns, which count by their beginning.
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

/// Whether the host of an account is, or includes, a host name or an address.
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

/// `10.1.0.0/255.255.0.0` or `10.1.0.0/16`
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

/// LIKE: `%` is any number of letters, `_` one, `\` takes the next as it is.
fn is_like(pattern: &[u8], text: &[u8]) -> bool {
    let (mut at, mut seen) = (0, 0);
    // Where to go on after a `%` that has to take one letter more.
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
