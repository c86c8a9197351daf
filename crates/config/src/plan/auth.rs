//! Defines which users may log in, from which addresses, and how they authenticate.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::path::PathBuf;

use ipnet::IpNet;

use super::Secret;
use crate::setting::words;

/// `[service.auth]`: permitted logins.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AuthPlan {
    /// Source of users that are not in the users file. Default server.
    pub source: AuthSource,
    /// Account for the lookup of users on the servers: from `[service.auth]`, or else the
    /// monitor's. Always set for `source = "server"`, never for the others.
    pub account: Option<AccountPlan>,
    /// PostgreSQL query that returns `(rolname, rolpassword, valid_until)` for the user `$1`.
    /// `None`: pg_authid is read.
    pub query: Option<String>,
    /// Users file, as written. Always set for `source = "file"`.
    pub users_file: Option<PathBuf>,
    /// Users of that file by name, as of the time when it was read.
    pub users: BTreeMap<String, UserPlan>,
    /// Permitted networks by user. `allow_others_from` applies to users who are not listed.
    pub allow_from: BTreeMap<String, Vec<IpNet>>,
    /// Entry `"*"` of `allow_from`. `None`: any address.
    pub allow_others_from: Option<Vec<IpNet>>,
}

impl AuthPlan {
    /// Returns whether a user may connect from an address. Clients of a Unix socket have no address
    /// and are always permitted.
    pub fn may_come_from(&self, user: &str, address: Option<IpAddr>) -> bool {
        let networks = self.allow_from.get(user);
        let (Some(networks), Some(address)) =
            (networks.or(self.allow_others_from.as_ref()), address)
        else {
            return true;
        };
        // An IPv4 client on an IPv6 socket has an IPv4-mapped address.
        let address = address.to_canonical();
        networks.iter().any(|network| network.contains(&address))
    }
}

words! {
    /// Source of users that are not in the users file.
    #[derive(Default)]
    pub enum AuthSource {
        /// The database servers.
        #[default]
        Server = "server",
        /// A login at a server with the password that the client sends.
        Login = "login",
        /// None: only users of the file may log in.
        File = "file",
    }
}

/// Account that reads password verifiers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AccountPlan {
    /// Name of the account.
    pub user: String,
    /// Password. Empty if none is set.
    pub password: Secret,
    /// Database of the login. Default: the server's choice.
    pub database: Option<String>,
}

/// `[users.NAME]` of the users file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct UserPlan {
    /// Credential against which a login is checked. `None`: the servers' verifier if `source` is
    /// `"server"`, and no password login if it is `"file"`.
    pub credential: Option<Credential>,
    /// True if a client certificate with this user's common name permits a login. Default false.
    pub certificate: bool,
    /// True if the password is requested in cleartext, over TLS or a Unix socket. Default false.
    pub cleartext: bool,
    /// User for the login to servers. `None`: the same name.
    pub server_user: Option<String>,
    /// Password for the login to servers. `None`: from the client's login or `credential`.
    pub server_password: Option<Secret>,
}

/// Credential against which a login is checked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Credential {
    /// The password itself, for every authentication method, and for the login to servers.
    Password(Secret),
    /// SCRAM verifier `SCRAM-SHA-256$…`, as in pg_authid.
    Scram(Secret),
    /// MD5 hash `md5…`, as in pg_authid.
    Md5(Secret),
    /// MySQL hash `*…` or `$A$…`, as in mysql.user.
    Mysql(Secret),
}
