//! Lists the tables that only database services have, and the users file.

use super::{Kind, NAME, PATH, Section, TEXT, section};
use crate::plan::{AuthSource, FailoverPlan, PoolPlan, RulePlan, RuleTo, SplitPlan};
use crate::setting::{Setting, keys};

/// `[service.tls]`
pub(crate) static TLS: Section = section(
    "[service.tls]",
    &[keys! {
        /// Certificate and intermediates (PEM).
        "certificate" = required, PATH;
        /// Private key (PEM, not encrypted).
        "key" = required, PATH;
        /// CA certificates (PEM) for client certificates; clients are asked for one, and a
        /// certificate that is sent must be valid.
        "client_ca", PATH;
        /// Refuse plaintext, except on Unix sockets.
        "required" = false, Kind::Flag;
    }],
);

/// `[service.auth]`
pub(crate) static AUTH: Section = section(
    "[service.auth]",
    &[keys! {
        /// Check of users that are not in the users file: against the password hashes that the
        /// servers return, by [a login at a server](logins.md#source--login) with the password
        /// that the client sends, or not at all.
        "source" = "server", AuthSource::KIND;
        /// Account that looks users up; the account of `[service.monitor]` when absent.
        "user", TEXT;
        /// Password of the account; none if both this key and `password_file` are absent.
        "password", TEXT;
        /// File that holds only the password; use it instead of `password`.
        "password_file", PATH;
        /// Database of the login; when absent, that of the monitor for the monitor's account, else
        /// the server decides.
        "database", TEXT;
        /// Query for the user `$1` that returns `(rolname, rolpassword, valid_until)`; `pg_authid`
        /// is read when absent.
        "query", TEXT => &["postgres"];
        /// The users file; required with `source = "file"`.
        "users_file", PATH;
        /// Client addresses and networks by user; `"*"` stands for all users without an entry. A
        /// user without any entry may connect from everywhere, a user with `[]` from nowhere; Unix
        /// sockets are not checked.
        "allow_from", Kind::Names("a table");
    }],
);

/// File that `users_file` names; not a part of the config file.
pub(crate) static USERS: Section = section(
    "the users file",
    &[keys! {
        "users", Kind::NamedTables(&USER);
    }],
);

/// User of that file.
pub static USER: Section = section(
    "[users.NAME]",
    &[keys! {
        /// Cleartext password; also used for the login to the servers.
        "password", TEXT;
        /// Password hash instead: `SCRAM-SHA-256$…` from `pg_authid.rolpassword`; mysql: `*…` or
        /// `$A$…` from `mysql.user.authentication_string`.
        "verifier", TEXT;
        /// Password hash instead: `md5…` from `pg_authid.rolpassword`.
        "md5", TEXT => &["postgres"];
        /// The user may log in with a client certificate (`client_ca`) that has the user's name as
        /// its common name.
        "certificate" = false, Kind::Flag;
        /// Request the password in cleartext, for clients that support nothing else; only over TLS
        /// or a Unix socket. The password is checked against this entry, or against the hash that
        /// the server returns.
        "cleartext" = false, Kind::Flag => &["postgres"];
        /// User for the login to the servers; the same name when absent.
        "server_user", TEXT;
        /// Password for the login to the servers; when absent, the credential of the client's
        /// login is used. Required after a login by certificate without `password`.
        "server_password", TEXT;
    }],
);

/// `[service.pool]`
pub(crate) static POOL: Section = section(
    "[service.pool]",
    &[
        PoolPlan::KEYS,
        keys! {
            "users", Kind::NamedTables(&POOL_USER);
            "databases", Kind::NamedTables(&POOL_DATABASE) => &["postgres"];
        },
    ],
);

/// `[service.pool.users.NAME]`
pub(crate) static POOL_USER: Section = section(
    "[service.pool.users.NAME]",
    &[keys! {
        /// Replaces `user_size` for this user.
        "size" = required, Kind::Number(0, 1_000_000);
    }],
);

/// `[service.pool.databases.NAME]`
pub(crate) static POOL_DATABASE: Section = section(
    "[service.pool.databases.NAME]",
    &[keys! {
        /// Replaces `database_size` for this database.
        "size" = required, Kind::Number(0, 1_000_000);
    }],
);

/// `[service.split]`
pub(crate) static SPLIT: Section = section("[service.split]", &[SplitPlan::KEYS]);

/// `[[service.rule]]`
pub(crate) static RULE: Section = section(
    "[[service.rule]]",
    &[
        keys! {
            /// Unique in the service.
            "name" = required, NAME;
        },
        RulePlan::KEYS.split_at(3).0,
        keys! {
            /// Condition: digest, common to all texts that differ only in literals;
            /// `evenkeel explain` prints it.
            "digest", Kind::Text("16 hexadecimal digits");
            /// Condition: found in the text of the statement.
            "match", Kind::Text("a regular expression");
            /// Action: send reads to the primary, to replicas, to all servers, or to these servers;
            /// needs `split.reads`.
            "to", Kind::WordOrTexts(RuleTo::GROUPS, "an array of servers");
        },
        RulePlan::KEYS.split_at(3).1,
    ],
);

/// `[service.failover]`
pub(crate) static FAILOVER: Section = section("[service.failover]", &[FailoverPlan::KEYS]);
