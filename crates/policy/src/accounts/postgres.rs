//! Authentication records of PostgreSQL.

use std::fmt;

use zeroize::Zeroizing;

/// A PostgreSQL user's authentication record.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PostgresAuthRecord {
    /// Stored verifier of the password.
    pub verifier: Verifier,
    /// True if the role may log in (`rolcanlogin`).
    pub can_login: bool,
    /// True if VALID UNTIL has passed, by the server's clock.
    pub expired: bool,
    /// Opaque text that changes when the role is replaced or its default settings change.
    pub role_fingerprint: String,
    /// Databases that accept no connections.
    pub closed_databases: Vec<String>,
    /// Databases that the role may not connect to.
    pub forbidden_databases: Vec<String>,
}

/// A password as a server stores it (`pg_authid.rolpassword`). Wiped on drop.
#[derive(Clone, PartialEq, Eq)]
pub enum Verifier {
    /// `SCRAM-SHA-256$…`.
    Scram(Zeroizing<String>),
    /// `md5…`.
    Md5(Zeroizing<String>),
    /// No password, or one in an unknown form.
    None,
}

impl Verifier {
    /// Parses the stored text.
    #[must_use]
    pub fn of_text(text: Option<String>) -> Verifier {
        let Some(text) = text.map(Zeroizing::new) else {
            return Verifier::None;
        };
        match text.as_str() {
            scram if scram.starts_with("SCRAM-SHA-256$") => Verifier::Scram(text),
            md5 if md5.starts_with("md5") && md5.len() == 35 => Verifier::Md5(text),
            _ => Verifier::None,
        }
    }
}

impl fmt::Debug for Verifier {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Verifier::Scram(_) => "Scram(hidden)",
            Verifier::Md5(_) => "Md5(hidden)",
            Verifier::None => "None",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_debug_output_shows_a_verifier() {
        for text in [
            "SCRAM-SHA-256$4096:c2FsdA==$x:y",
            "md5aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa",
        ] {
            let verifier = Verifier::of_text(Some(text.to_owned()));
            assert_ne!(verifier, Verifier::None);
            let shown = format!("{verifier:?}");
            assert!(shown.contains("hidden") && !shown.contains(&text[3..]));
        }
        assert_eq!(Verifier::of_text(None), Verifier::None);
        assert_eq!(Verifier::of_text(Some("plain".to_owned())), Verifier::None);
    }
}
