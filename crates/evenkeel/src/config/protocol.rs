//! Reads `protocol`, and checks which keys of a service it permits.

use super::plan::{Protocol, ProtocolInfo, ServerConnections, SqlProtocol};
use super::problem::Problems;
use super::reader::Table;

/// Keys that require a protocol with pooled server connections.
const DATABASE_KEYS: [&str; 13] = [
    "query_timeout_ms",
    "transaction_timeout_ms",
    "idle_in_transaction_timeout_ms",
    "login_timeout_ms",
    "logins_at_once",
    "logins_per_address",
    "digests_max",
    "tls",
    "auth",
    "pool",
    "split",
    "rule",
    "failover",
];

/// Keys that require a protocol in which each client has its own server connection, with advice for
/// others.
const PER_CLIENT_KEYS: [(&str, &str); 10] = [
    (
        "role",
        "remove it: one service handles both; writes go to the primary, and reads to the replicas \
         with [service.split] `reads = true`",
    ),
    (
        "on_primary_change",
        "remove it: sessions move to the new primary; [service.failover] sets how long they may \
         wait",
    ),
    (
        "fallback",
        "remove it: reads go to the primary while no replica can serve them",
    ),
    (
        "half_close_timeout_ms",
        "remove it: a client that closes its sending side is disconnected; use `idle_timeout_ms` \
         for inactive clients",
    ),
    (
        "hello_timeout_ms",
        "remove it: `login_timeout_ms` limits the TLS handshake, too",
    ),
    (
        "all_down",
        "remove it: [service.failover] `wait_ms` sets how long clients wait for a server",
    ),
    SEND_PROXY,
    (
        "on_server_down",
        "remove it: statements on a failed server are aborted immediately, and clients continue on \
         another server",
    ),
    (
        "retries",
        "remove it: [service.pool] `wait_ms` and [service.failover] `wait_ms` set how long clients \
         wait for a server",
    ),
    (
        "queue",
        "use [service.pool] `wait_ms` and `queue_length`: clients wait for a server connection",
    ),
];

const SEND_PROXY: (&str, &str) = (
    "send_proxy",
    "remove it: server connections are shared by clients; restrict client addresses with \
     [service.auth] `allow_from`",
);

/// Keys of HTTP services only.
const HTTP_KEYS: [&str; 4] = ["http", "times", "sticky", "retry"];

/// Keys of database services that HTTP services have, too.
const SHARED_KEYS: [&str; 2] = ["tls", "pool"];

/// Keys of a protocol in which each client has its own server connection, with advice for HTTP
/// services.
const NOT_FOR_HTTP: [(&str, &str); 9] = [
    (
        "role",
        "remove it: web servers have no roles; mark spare servers with `backup = true`",
    ),
    (
        "on_primary_change",
        "remove it: web servers have no primary",
    ),
    ("fallback", "remove it: web servers have no roles"),
    (
        "half_close_timeout_ms",
        "remove it: [service.times] limits requests, bodies and tunnels",
    ),
    (
        "hello_timeout_ms",
        "remove it: a TLS handshake may take 10 seconds",
    ),
    (
        "all_down",
        "remove it: requests are answered with 503 while no server is up",
    ),
    (
        "send_proxy",
        "remove it: server connections are shared by clients; servers find the client's address in \
         `X-Forwarded-For`",
    ),
    (
        "on_server_down",
        "remove it: requests that may be repeated continue on another server",
    ),
    (
        "queue",
        "use [service.pool] `wait_ms` and `queue_length`: requests wait for a server connection",
    ),
];

/// Reads the protocol. Returns `None` for an invalid word: then it is unknown which keys are valid.
pub(super) fn read(table: &Table<'_>, problems: &mut Problems) -> Option<Protocol> {
    if table.value("protocol").is_none() {
        return Some(Protocol::Tcp);
    }
    let info = ProtocolInfo::named(table.word("protocol", problems)?)?;
    Some((info.new)())
}

/// Reports keys that require another protocol.
pub(super) fn check_keys(protocol: &Protocol, table: &Table<'_>, problems: &mut Problems) {
    let info = ProtocolInfo::of(protocol);
    match info.connections {
        ServerConnections::PerClient => {
            refuse_pooled_keys(info.name, &[], table, problems);
            refuse_http_keys(info.name, table, problems);
        }
        ServerConnections::PerRequest => {
            refuse_pooled_keys(info.name, &SHARED_KEYS, table, problems);
            refuse_per_client_keys(info.name, &NOT_FOR_HTTP, table, problems);
        }
        ServerConnections::Pooled => {
            refuse_per_client_keys(info.name, &PER_CLIENT_KEYS, table, problems);
            refuse_http_keys(info.name, table, problems);
            refuse_route(info.name, table, problems);
        }
    }
}

/// Reports `send_proxy` of a cluster of databases.
pub(super) fn refuse_send_proxy(protocol: SqlProtocol, table: &Table<'_>, problems: &mut Problems) {
    refuse_per_client_keys(protocol.name(), &[SEND_PROXY], table, problems);
}

fn refuse_per_client_keys(
    protocol: &str,
    keys: &[(&str, &str)],
    table: &Table<'_>,
    problems: &mut Problems,
) {
    let owners: Vec<_> = ProtocolInfo::names_with(ServerConnections::PerClient).collect();
    refuse(
        protocol,
        &owners.join("\"` and `\""),
        keys,
        (table, problems),
    );
}

fn refuse_pooled_keys(protocol: &str, shared: &[&str], table: &Table<'_>, problems: &mut Problems) {
    for key in DATABASE_KEYS
        .into_iter()
        .filter(|key| !shared.contains(key))
    {
        let mut owners: Vec<_> = ProtocolInfo::names_with(ServerConnections::Pooled).collect();
        if SHARED_KEYS.contains(&key) {
            owners.extend(ProtocolInfo::names_with(ServerConnections::PerRequest));
        }
        refuse_key(protocol, &owners, key, table, problems);
    }
}

fn refuse_http_keys(protocol: &str, table: &Table<'_>, problems: &mut Problems) {
    let owners: Vec<_> = ProtocolInfo::names_with(ServerConnections::PerRequest).collect();
    for key in HTTP_KEYS {
        refuse_key(protocol, &owners, key, table, problems);
    }
}

/// Reports routes by host: [service.split] and rules lead statements to servers.
fn refuse_route(protocol: &str, table: &Table<'_>, problems: &mut Problems) {
    let with = [ServerConnections::PerClient, ServerConnections::PerRequest];
    let owners: Vec<_> = with
        .into_iter()
        .flat_map(ProtocolInfo::names_with)
        .collect();
    refuse_key(protocol, &owners, "route", table, problems);
}

/// Reports a key that belongs to other protocols.
fn refuse_key(
    protocol: &str,
    owners: &[&str],
    key: &str,
    table: &Table<'_>,
    problems: &mut Problems,
) {
    if table.value(key).is_none() {
        return;
    }
    let (last, others) = owners.split_last().unwrap_or((&"", &[]));
    let words = |joint: &str| match others.is_empty() {
        true => (*last).to_owned(),
        false => format!("{}\"` {joint} `\"{last}", others.join("\"`, `\"")),
    };
    let message = format!(
        "`{key}` is for `protocol = \"{}\"`, not for `{protocol}`",
        words("and")
    );
    let help = format!("set `protocol = \"{}\"`, or remove `{key}`", words("or"));
    problems.error(&table.key_span(key), "E_PROTOCOL_KEY", message, help);
}

/// Reports keys that belong to the protocol `of`, each with its advice.
pub(super) fn refuse(
    protocol: &str,
    of: &str,
    keys: &[(&str, &str)],
    (table, problems): (&Table<'_>, &mut Problems),
) {
    for (key, instead) in keys.iter().filter(|(key, _)| table.value(key).is_some()) {
        let message = format!("`{key}` is for `protocol = \"{of}\"`, not for `{protocol}`");
        problems.error(&table.key_span(key), "E_PROTOCOL_KEY", message, *instead);
    }
}
