//! Defines the errors of failed logins, with the codes and texts of the servers.

use std::net::IpAddr;

use evenkeel_wire::mysql::ProtocolError;
use evenkeel_wire::mysql::login::AuthFailure;

use super::super::error_reply::ErrorReply;
use crate::error_catalog;
use crate::upstream::connect_error::ErrorCode;

/// User and client address in the servers' notation.
pub(super) struct AccountName<'a> {
    pub(super) user: &'a str,
    pub(super) address: Option<IpAddr>,
    /// True if the servers resolve addresses to names.
    pub(super) by_name: bool,
}

impl AccountName<'_> {
    /// Returns the host. Only loopback addresses are named, since servers resolve them without a
    /// lookup too.
    fn host(&self) -> String {
        match self.address.map(|address| address.to_canonical()) {
            None => "localhost".to_owned(),
            Some(address) if self.by_name && address.is_loopback() => "localhost".to_owned(),
            Some(address) => address.to_string(),
        }
    }

    /// Returns ER_ACCESS_DENIED_ERROR, for a wrong password and for an unknown user alike.
    pub(super) fn denied(&self, with_password: bool) -> ErrorReply {
        let (user, host) = (self.user, self.host());
        let with = if with_password { "YES" } else { "NO" };
        ErrorReply::with(&error_catalog::ACCESS_DENIED, &[&user, &host, &with])
    }

    /// Returns ER_ACCOUNT_HAS_BEEN_LOCKED of MariaDB or MySQL.
    pub(super) fn locked(&self, mariadb: bool) -> ErrorReply {
        let (user, host) = (self.user, self.host());
        match mariadb {
            true => ErrorReply::new(&error_catalog::ACCOUNT_LOCKED_MARIADB),
            false => ErrorReply::with(&error_catalog::ACCOUNT_LOCKED_MYSQL, &[&user, &host]),
        }
    }
}

/// Returns the error for a malformed packet.
pub(super) fn of_fault(fault: ProtocolError) -> ErrorReply {
    match fault {
        ProtocolError::TooLong { .. } => {
            ErrorReply::with(&error_catalog::PACKET_TOO_LONG, &[&fault])
        }
        ProtocolError::Sequence(_) => ErrorReply::new(&error_catalog::PACKETS_OUT_OF_ORDER),
        ProtocolError::TooOld => ErrorReply::new(&error_catalog::CLIENT_TOO_OLD),
        _ => ErrorReply::with(&error_catalog::MALFORMED_HANDSHAKE, &[&fault]),
    }
}

/// Returns the error for any other authentication failure.
pub(super) fn refused(
    client: &AccountName<'_>,
    refusal: AuthFailure,
    with_password: bool,
) -> ErrorReply {
    match refusal {
        AuthFailure::WrongPassword => client.denied(with_password),
        AuthFailure::Protocol => ErrorReply::new(&error_catalog::BAD_HANDSHAKE),
        _ => {
            let reply = ErrorReply::with(&error_catalog::AUTHENTICATION_FAILED, &[&refusal]);
            reply.coded(ErrorCode {
                number: refusal.code(),
                sqlstate: refusal.sqlstate().0,
            })
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn denied(address: Option<&str>, by_name: bool) -> String {
        let address = address.map(|address| address.parse().unwrap());
        let client = AccountName {
            user: "app",
            address,
            by_name,
        };
        client.denied(true).message
    }

    #[test]
    fn hosts_are_called_as_servers_call_them() {
        let expect = |host| format!("Access denied for user 'app'@'{host}' (using password: YES)");
        assert_eq!(denied(None, false), expect("localhost"));
        assert_eq!(denied(Some("127.0.0.1"), true), expect("localhost"));
        assert_eq!(denied(Some("127.0.0.1"), false), expect("127.0.0.1"));
        assert_eq!(denied(Some("::ffff:192.0.2.7"), true), expect("192.0.2.7"));
        assert_eq!(denied(Some("2001:db8::1"), true), expect("2001:db8::1"));
    }

    #[test]
    fn each_family_has_its_own_number_for_a_locked_account() {
        let client = AccountName {
            user: "app",
            address: None,
            by_name: true,
        };
        assert_eq!(client.locked(true).code.number, 4151);
        assert_eq!(client.locked(false).code.number, 3118);
    }
}
