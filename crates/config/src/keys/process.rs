//! Lists the tables of the process.

use super::{CLUSTER, Kind, PATH, SERVICE, Section, TEXT, section};
use crate::plan::{AcmePlan, Engine, Log, PeersPlan};
use crate::setting::keys;

/// The file itself.
pub static ROOT: Section = section(
    "the top level",
    &[keys! {
        "engine", Kind::Table(&ENGINE);
        "admin", Kind::Table(&ADMIN);
        "log", Kind::Table(&LOG);
        "peers", Kind::Table(&PEERS);
        "acme", Kind::Table(&ACME);
        /// One for each set of servers that several services use.
        "cluster", Kind::Tables(&CLUSTER);
        /// One for each service; at least one.
        "service", Kind::Tables(&SERVICE);
    }],
);

/// `[engine]`
pub(crate) static ENGINE: Section = section("[engine]", &[Engine::KEYS]);

/// `[log]`
pub(crate) static LOG: Section = section("[log]", &[Log::KEYS]);

const ADDRESS_OR_OFF: Kind = Kind::Text("an address or `off`");

/// `[admin]`
pub(crate) static ADMIN: Section = section(
    "[admin]",
    &[keys! {
        /// Status page, JSON API and `/metrics` ([API](api.md)).
        "listen" = "127.0.0.1:9000", ADDRESS_OR_OFF;
        /// Admin console for PostgreSQL clients ([console](operating.md#the-console)).
        "postgres" = "off", ADDRESS_OR_OFF;
        /// Admin console for MySQL and MariaDB clients.
        "mysql" = "off", ADDRESS_OR_OFF;
        /// Control socket of `evenkeel status`, `drain` and the other commands, mode 0600. When
        /// absent: `/run/evenkeel/evenkeel.sock` for root; for other users
        /// `$XDG_RUNTIME_DIR/evenkeel.sock`, or `/tmp/evenkeel-UID/evenkeel.sock`.
        "socket", Kind::Text("a path up to 107 bytes");
        /// Allows changes over TCP, and reads from other machines; without a token both are
        /// refused.
        "token", TEXT;
        /// File that holds only the token; use it instead of `token`.
        "token_file", PATH;
        /// Names (without a port) under which browsers may open the admin port, besides IP
        /// addresses and `localhost`.
        "allowed_hosts" = [], Kind::Texts("host names");
    }],
);

/// `[peers]`
pub(crate) static PEERS: Section = section(
    "[peers]",
    &[
        PeersPlan::KEYS,
        keys! {
            /// Addresses of the instances by number; the own number is ignored, so that all
            /// instances can have one list.
            "addresses", Kind::Names("a table");
        },
    ],
);

/// `[acme]`
pub(crate) static ACME: Section = section(
    "[acme]",
    &[
        keys! {
            /// true: you agree to the terms of the authority.
            "terms_agreed" = required, Kind::Flag;
        },
        AcmePlan::KEYS,
        keys! {
            /// Directory for the account, the certificates and the state of orders, mode 0700. It
            /// is made if it is missing. Balancers of the same names must share it.
            "storage" = "/var/lib/evenkeel/acme", PATH;
            /// PEM file with the authorities of the directory's server, in place of the public
            /// ones.
            "ca", PATH;
            /// Identifier of the key by which the account is bound to one that you have at the
            /// authority (external account binding).
            "eab_key_id", TEXT;
            /// File that holds only this key, base64url.
            "eab_key_file", PATH;
        },
    ],
);
