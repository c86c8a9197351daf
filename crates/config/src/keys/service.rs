//! Lists the tables of a service that depend on no protocol.

use evenkeel_policy::balance::Algorithm;

use super::servers::SEND_PROXY;
use super::{
    AUTH, FAILOVER, HEALTH, HTTP, HTTP_POOL, HTTP_TLS, Kind, MONITOR, NAME, POOL, RETRY, ROUTE,
    RULE, SERVER, SERVER_TLS, SPLIT, STICKY, Section, TIMES, TLS, section,
};
use crate::plan::SQL;
use crate::plan::{
    DatabasePlan, Fallback, Keepalive, OnPrimaryChange, PROTOCOL_NAMES, Queue, ServicePlan,
    TimesPlan, TlsRoutesPlan,
};
use crate::setting::{DAY_MS, Setting, keys};

/// `[[service]]`
pub(crate) static SERVICE: Section = section(
    "[[service]]",
    &[
        keys! {
            /// Unique; used in status, log and metrics.
            "name" = required, NAME;
            /// `tcp` forwards bytes unparsed; `http` balances requests; the other two pool and
            /// route statements.
            "protocol" = "tcp", Kind::Word(PROTOCOL_NAMES);
            /// Addresses that clients connect to; required, except for a service that routes lead
            /// to.
            "listen", Kind::Texts("an address or an array of them");
            /// Cluster whose servers the service uses; see below the table.
            "cluster", Kind::Text("name of a `[[cluster]]`");
            /// Addresses, or tables as [below](#an-entry-of-servers); required without `cluster`
            /// and without routes.
            "servers", Kind::Entries("an array", &SERVER);
            /// [Algorithm](configuration.md#balancing) that selects a server; `least-connections`
            /// is the default for http, postgres and mysql.
            "balance" = "round-robin", Kind::Word(Algorithm::NAMES);
            /// Role of the servers that this service uses ([roles](configuration.md#roles)).
            "role" = "any", Kind::Word(&["any", "primary", "replica"]) => &["tcp"];
            /// Terminate sessions on a server that is no longer the primary, or leave them. Needs
            /// `role = "primary"`.
            "on_primary_change" = "cut", OnPrimaryChange::KIND => &["tcp"];
            /// A replica with more lag, or unknown lag, receives no new clients or reads. With
            /// `role = "replica"`, or `split.reads`; no limit when absent.
            "lag_ms_max", Kind::Number(0, DAY_MS);
            /// Server of the clients while no replica can serve them. Needs `role = "replica"`.
            "fallback" = "nobody", Fallback::KIND => &["tcp"]; // tidy: a value of the configuration
        },
        ServicePlan::KEYS,
        TlsRoutesPlan::KEYS,
        TimesPlan::KEYS,
        DatabasePlan::KEYS,
        keys! {
            /// Peers that must send a PROXY header (version 1 or 2); others must not.
            "accept_proxy_from" = [], Kind::Texts("addresses and networks");
        },
        SEND_PROXY,
        keys! {
            "queue", Kind::Table(&QUEUE) => &["tcp"];
            "keepalive", Kind::Table(&KEEPALIVE);
            "health", Kind::Table(&HEALTH);
            "monitor", Kind::Table(&MONITOR);
            "server_tls", Kind::Table(&SERVER_TLS);
            "tls", Kind::Table(&TLS) => SQL;
            "tls", Kind::Table(&HTTP_TLS) => &["http"];
            "auth", Kind::Table(&AUTH) => SQL;
            "pool", Kind::Table(&POOL) => SQL;
            "pool", Kind::Table(&HTTP_POOL) => &["http"];
            "split", Kind::Table(&SPLIT) => SQL;
            /// Tried in this order.
            "rule", Kind::Tables(&RULE) => SQL;
            "failover", Kind::Table(&FAILOVER) => SQL;
            "http", Kind::Table(&HTTP) => &["http"];
            "times", Kind::Table(&TIMES) => &["http"];
            /// tcp: [Routes by the server name of TLS](tls-by-name.md).
            "route", Kind::Tables(&ROUTE) => &["tcp", "http"];
            "sticky", Kind::Table(&STICKY) => &["http"];
            "retry", Kind::Table(&RETRY) => &["http"];
        },
    ],
);

/// `[service.queue]`
pub(crate) static QUEUE: Section = section("[service.queue]", &[Queue::KEYS]);

/// `[service.keepalive]`
pub(crate) static KEEPALIVE: Section = section("[service.keepalive]", &[Keepalive::KEYS]);
