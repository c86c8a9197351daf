//! Defines the errors of failed logins, with the codes and texts of the servers.

use std::net::IpAddr;
use std::time::Duration;

use evenkeel_wire::mysql::ProtocolError;
use evenkeel_wire::mysql::login::AuthFailure;

use super::super::error_reply::ErrorReply;

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
        let text = format!("Access denied for user '{user}'@'{host}' (using password: {with})");
        ErrorReply::new(1045, b"28000", text)
    }

    /// Returns ER_ACCOUNT_HAS_BEEN_LOCKED of MariaDB or MySQL.
    pub(super) fn locked(&self, mariadb: bool) -> ErrorReply {
        let (user, host) = (self.user, self.host());
        match mariadb {
            true => ErrorReply::new(4151, b"HY000", "Access denied, this account is locked"),
            false => {
                let text = format!("Access denied for user '{user}'@'{host}'. Account is locked.");
                ErrorReply::new(3118, b"HY000", text)
            }
        }
    }
}

/// Returns ER_MUST_CHANGE_PASSWORD_LOGIN.
pub(super) fn expired() -> ErrorReply {
    ErrorReply::new(
        1862,
        b"HY000",
        "Your password has expired. To log in you must change it using a client that supports \
         expired passwords, connected to the server itself.",
    )
}

/// Returns ER_SECURE_TRANSPORT_REQUIRED.
pub(super) fn tls_required() -> ErrorReply {
    let text = "Connections using insecure transport are prohibited while \
                --require_secure_transport=ON.";
    ErrorReply::new(3159, b"HY000", text)
}

/// Returns ER_HANDSHAKE_ERROR.
pub(super) fn bad_handshake() -> ErrorReply {
    ErrorReply::new(1043, b"08S01", "Bad handshake")
}

/// Returns the error for a malformed packet.
pub(super) fn of_fault(fault: ProtocolError) -> ErrorReply {
    match fault {
        ProtocolError::TooLong { .. } => {
            let text = format!("Got a packet bigger than 'max_allowed_packet' bytes: {fault}");
            ErrorReply::new(1153, b"08S01", text)
        }
        ProtocolError::Sequence(_) => ErrorReply::new(1156, b"08S01", "Got packets out of order"),
        ProtocolError::TooOld => ErrorReply::new(
            1251,
            b"08004",
            "Client does not support authentication protocol requested by server; consider \
             upgrading MySQL client",
        ),
        _ => ErrorReply::new(1043, b"08S01", format!("Bad handshake: {fault}")),
    }
}

/// Returns the error for credentials that cannot be looked up.
pub(super) fn credentials_unavailable() -> ErrorReply {
    let text = "cannot verify credentials: no server is reachable, try again";
    ErrorReply::new(2003, b"HY000", text)
}

/// Returns ER_CON_COUNT_ERROR.
pub(super) fn full_doorstep() -> ErrorReply {
    let text = "too many concurrent logins, try again (see logins_at_once and logins_per_address \
                of the service)";
    ErrorReply::new(1040, b"08004", text)
}

/// Returns ER_NET_READ_INTERRUPTED.
pub(super) fn too_slow(limit: Duration) -> ErrorReply {
    let limit_ms = limit.as_millis();
    let text =
        format!("login not completed within {limit_ms} ms (login_timeout_ms of the service)");
    ErrorReply::new(1159, b"08S01", text)
}

/// Returns the error for a plugin that provides no credential for the servers.
pub(super) fn no_credential(plugin: &str) -> ErrorReply {
    let text = format!(
        "authentication succeeded, but {plugin} provides no credential for the servers: add the \
         user with server_password to users_file of [service.auth]"
    );
    ErrorReply::new(1251, b"08004", text)
}

/// Returns the error for any other authentication failure.
pub(super) fn refused(
    client: &AccountName<'_>,
    refusal: AuthFailure,
    with_password: bool,
) -> ErrorReply {
    match refusal {
        AuthFailure::WrongPassword => client.denied(with_password),
        AuthFailure::Protocol => bad_handshake(),
        _ => {
            let text = format!("authentication failed: {refusal}");
            ErrorReply::new(refusal.code(), &refusal.sqlstate().0, text)
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
        assert_eq!(tls_required().code.number, 3159);
    }
}
