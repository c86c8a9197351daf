//! Lists the tables of servers: addresses, health checks, the monitor account and TLS.

use super::{Kind, NAME, PATH, Section, TEXT, section};
use crate::plan::{Health, Monitor, PROTOCOL_NAMES, Probe, SendProxy, ServerPlan, TlsMode};
use crate::setting::{Key, Setting, keys};

/// Keys with which a service or a cluster lists its servers.
pub(super) const SEND_PROXY: &[Key] = keys! {
    /// PROXY header at the start of each server connection; probes and role queries send one
    /// without a client address.
    "send_proxy" = "off", SendProxy::KIND => &["tcp"];
};

/// `[[cluster]]`
pub(crate) static CLUSTER: Section = section(
    "[[cluster]]",
    &[
        keys! {
            /// Unique among the clusters.
            "name" = required, NAME;
            /// Protocol of the cluster's services.
            "protocol" = "tcp", Kind::Word(PROTOCOL_NAMES);
            /// Addresses, or tables as [below](#an-entry-of-servers).
            "servers" = required, Kind::Entries("an array", &SERVER);
        },
        SEND_PROXY,
        keys! {
            "health", Kind::Table(&CLUSTER_HEALTH);
            "monitor", Kind::Table(&CLUSTER_MONITOR);
            "server_tls", Kind::Table(&CLUSTER_SERVER_TLS);
        },
    ],
);

/// Entry of `servers` that is a table.
pub(crate) static SERVER: Section = section(
    "an entry of `servers`",
    &[
        keys! {
            /// Host and port, or `unix:/path`.
            "address" = required, Kind::Text("an address");
            /// Unique in the service or cluster; the address when absent.
            "name", Kind::Text("up to 64 of a-z A-Z 0-9 `.` `_` `-` `:` `[` `]`");
        },
        ServerPlan::KEYS,
    ],
);

/// `[service.health]`
pub static HEALTH: Section = section("[service.health]", HEALTH_KEYS);

/// `[cluster.health]`
pub(crate) static CLUSTER_HEALTH: Section = section("[cluster.health]", HEALTH_KEYS);

/// Words of `probe`.
const PROBES: [&str; Probe::NAMES.len() + 1] = {
    let mut words = [Health::NO_PROBE; Probe::NAMES.len() + 1];
    let (_, names) = words.split_at_mut(1);
    names.copy_from_slice(Probe::NAMES);
    words
};

const HEALTH_KEYS: &[&[Key]] = &[
    keys! {
        /// Kind of the health check; the database probes log in and run a query. The default for
        /// postgres and mysql with `[service.monitor]` is the probe of that protocol.
        "probe" = "tcp", Kind::Word(&PROBES);
    },
    Health::KEYS,
    keys! {
        /// http: Path of the request.
        "path" = "/", TEXT;
        /// http, grpc: Host header; the address of the server when absent.
        "host", TEXT;
        /// http: Good status codes, as `200`, `"200-399"` or `[200, "300-399"]`.
        "status" = "200-399", Kind::Codes("codes and ranges from 100 to 599");
        /// http: Text that the response must contain.
        "body", TEXT;
        /// grpc: Service whose health is asked for (`grpc.health.v1.Health`); the whole server when
        /// absent.
        "grpc_service", TEXT;
        /// mysql, postgres: Query that runs after the login.
        "query" = "SELECT 1", TEXT;
    },
];

/// `[service.monitor]`
pub static MONITOR: Section = section("[service.monitor]", MONITOR_KEYS);

/// `[cluster.monitor]`
pub(crate) static CLUSTER_MONITOR: Section = section("[cluster.monitor]", MONITOR_KEYS);

const MONITOR_KEYS: &[&[Key]] = &[
    keys! {
        /// Name of the account.
        "user" = required, TEXT;
        /// Password; none if both this key and `password_file` are absent.
        "password", TEXT;
        /// File that holds only the password; use it instead of `password`.
        "password_file", PATH;
    },
    Monitor::KEYS,
];

/// `[service.server_tls]`
pub static SERVER_TLS: Section = section("[service.server_tls]", SERVER_TLS_KEYS);

/// `[cluster.server_tls]`
pub(crate) static CLUSTER_SERVER_TLS: Section = section("[cluster.server_tls]", SERVER_TLS_KEYS);

const SERVER_TLS_KEYS: &[&[Key]] = &[keys! {
    /// `encrypt` does not check the certificate. When absent: http: `off`, or `verify` if another
    /// key of this table is set; otherwise `off` on loopback and Unix sockets, `verify` elsewhere.
    "mode", TlsMode::KIND;
    /// CA certificates (PEM) that sign the servers' certificates. When absent: the public CAs
    /// (Mozilla's list).
    "ca", PATH;
    /// SHA-256 fingerprints of server certificates, as `"sha256:…"`. They are accepted whatever
    /// their issuer, name and validity; others only if `ca` signs them. `mode` is then `verify`,
    /// also on loopback.
    "fingerprints", Kind::Texts("an array");
    /// Evenkeel's own certificate and intermediates (PEM), for servers that request one
    /// (`clientcert` in pg_hba.conf, `REQUIRE X509`).
    "certificate", PATH;
    /// Private key of `certificate` (PEM, not encrypted); required with it.
    "key", PATH;
}];
