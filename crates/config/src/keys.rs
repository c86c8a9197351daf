//! Lists all tables of the file and their keys, for the reader, the suggestions and the
//! documentation.

mod database;
mod http;
mod process;
mod servers;
mod service;

pub use self::database::USER;
pub(crate) use self::database::{
    AUTH, FAILOVER, POOL, POOL_DATABASE, POOL_USER, RULE, SPLIT, TLS, USERS,
};
pub(crate) use self::http::{
    BASIC_AUTH, CERTIFICATE, HTTP, HTTP_POOL, HTTP_TLS, MIRROR, RESPOND, RETRY, ROUTE, SPLIT_PART,
    STICKY, TIMES,
};
pub(crate) use self::http::{COMPRESS_WORDS, RETRY_WORDS};
pub use self::process::ROOT;
pub(crate) use self::process::{ACME, ADMIN, ENGINE, LOG, PEERS};
pub(crate) use self::servers::{
    CLUSTER, CLUSTER_HEALTH, CLUSTER_MONITOR, CLUSTER_SERVER_TLS, SERVER,
};
pub use self::servers::{HEALTH, MONITOR, SERVER_TLS};
pub(crate) use self::service::{KEEPALIVE, QUEUE, SERVICE};
pub use crate::setting::{Absent, Key, Kind, Section};

/// All tables of the config file, in the order of the documentation.
pub static SECTIONS: [&Section; 37] = [
    &ROOT,
    &ENGINE,
    &ADMIN,
    &LOG,
    &PEERS,
    &ACME,
    &CLUSTER,
    &SERVICE,
    &SERVER,
    &QUEUE,
    &KEEPALIVE,
    &HEALTH,
    &CLUSTER_HEALTH,
    &MONITOR,
    &CLUSTER_MONITOR,
    &SERVER_TLS,
    &CLUSTER_SERVER_TLS,
    &TLS,
    &AUTH,
    &POOL,
    &POOL_USER,
    &POOL_DATABASE,
    &SPLIT,
    &RULE,
    &FAILOVER,
    &HTTP_POOL,
    &HTTP_TLS,
    &CERTIFICATE,
    &HTTP,
    &TIMES,
    &ROUTE,
    &SPLIT_PART,
    &MIRROR,
    &RESPOND,
    &BASIC_AUTH,
    &STICKY,
    &RETRY,
];

/// Limits of names, which must be valid in URLs and metrics.
const NAME: Kind = Kind::Text("up to 64 of a-z A-Z 0-9 `.` `_` `-`");
const TEXT: Kind = Kind::Text("text");
const PATH: Kind = Kind::Text("a path");

const fn section(title: &'static str, groups: &'static [&'static [Key]]) -> Section {
    Section {
        title,
        groups,
        all: &SECTIONS,
    }
}
