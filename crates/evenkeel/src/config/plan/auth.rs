//! Who may log in, from where, and where that is known.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::path::PathBuf;

use ipnet::IpNet;

use super::Secret;

/// `[service.auth]`: who may log in.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AuthPlan {
    /// Who knows the users that are not in the file. Default server.
    pub source: AuthSource,
    /// Asks the servers: that of `[service.auth]`, or else the monitor's. Always there for
    /// `source = "server"`, never for `"file"`.
    pub account: Option<AccountPlan>,
    /// PostgreSQL: answers `(rolname, rolpassword, valid_until)` for the user `$1`. `None`:
    /// pg_authid is read.
    pub query: Option<String>,
    /// The file of users, as named. Always there for `source = "file"`.
    pub users_file: Option<PathBuf>,
    /// What it held when it was read, by name.
    pub users: BTreeMap<String, UserPlan>,
    /// Where users may come from, by name. A user who is not named: `allow_others_from`.
    pub allow_from: BTreeMap<String, Vec<IpNet>>,
    /// The entry `"*"` of `allow_from`. `None`: from anywhere.
    pub allow_others_from: Option<Vec<IpNet>>,
}

impl AuthPlan {
    /// Whether a user may come from an address; clients of a Unix socket have none, and may.
    pub fn may_come_from(&self, user: &str, address: Option<IpAddr>) -> bool {
        let networks = self.allow_from.get(user);
        let (Some(networks), Some(address)) =
            (networks.or(self.allow_others_from.as_ref()), address)
        else {
            return true;
        };
        // An IPv4 client of an IPv6 socket is an IPv4 client.
        let address = address.to_canonical();
        networks.iter().any(|network| network.contains(&address))
    }
}

/// Who knows the users that are not in the file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum AuthSource {
    /// The servers.
    #[default]
    Server,
    /// Nobody.
    File,
}

impl AuthSource {
    /// The word used in the file.
    pub fn name(self) -> &'static str {
        match self {
            AuthSource::Server => "server",
            AuthSource::File => "file",
        }
    }
}

/// The account that reads verifiers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AccountPlan {
    /// Its name.
    pub user: String,
    /// Empty when none is given.
    pub password: Secret,
    /// Where it logs in. Default: the server's own choice.
    pub database: Option<String>,
}

/// `[users.NAME]` of the file of users.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct UserPlan {
    /// What a login is checked against. `None`: the servers' verifier with `source = "server"`, no
    /// login by password with `"file"`.
    pub credential: Option<Credential>,
    /// May log in by a client certificate whose common name is this user's. Default false.
    pub certificate: bool,
    /// Is asked for the password as it is, over TLS or a Unix socket. Default false.
    pub cleartext: bool,
    /// Who logs in to the servers. `None`: the same name.
    pub server_user: Option<String>,
    /// With what. `None`: what the login or `credential` gives.
    pub server_password: Option<Secret>,
}

/// What a login is checked against.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Credential {
    /// The password itself: any kind of login, and the servers' too.
    Password(Secret),
    /// `SCRAM-SHA-256$…`, as in pg_authid.
    Scram(Secret),
    /// `md5…`, as in pg_authid.
    Md5(Secret),
    /// `*…` or `$A$…`, as in mysql.user.
    Mysql(Secret),
}
