//! Reads `protocol`, and checks which keys of a service it permits.

use crate::plan::{Protocol, ProtocolInfo, ServerConnections};
use crate::problem::Problems;
use crate::reader::Table;

/// Advice for keys that services of databases do not have.
const NOT_FOR_DATABASES: [(&str, &str); 10] = [
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
    (
        "send_proxy",
        "remove it: server connections are shared by clients; restrict client addresses with \
     [service.auth] `allow_from`",
    ),
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

/// Advice for keys that HTTP services do not have.
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
pub(crate) fn read(table: &Table<'_>, problems: &mut Problems) -> Option<Protocol> {
    if table.value("protocol").is_none() {
        return Some(Protocol::Tcp);
    }
    let info = ProtocolInfo::named(table.word("protocol", problems)?)?;
    Some((info.new)())
}

/// Reports keys of a service or a cluster that require another protocol.
pub(crate) fn check_keys(protocol: &Protocol, table: &Table<'_>, problems: &mut Problems) {
    let info = ProtocolInfo::of(protocol);
    let advice: &[_] = match info.connections {
        ServerConnections::PerClient => &[],
        ServerConnections::PerRequest => &NOT_FOR_HTTP,
        ServerConnections::Pooled => &NOT_FOR_DATABASES,
    };
    refuse(info.name, advice, table, problems);
}

/// Reports keys of a table that require another protocol, some with advice of their own.
pub(crate) fn refuse(
    protocol: &str,
    advice: &[(&str, &str)],
    table: &Table<'_>,
    problems: &mut Problems,
) {
    for (key, owners) in table.foreign_keys(protocol) {
        let (last, others) = owners.split_last().unwrap_or((&"", &[]));
        let words = |joint: &str| match others.is_empty() {
            true => (*last).to_owned(),
            false => format!("{}\"` {joint} `\"{last}", others.join("\"`, `\"")),
        };
        let message = format!(
            "`{key}` is for `protocol = \"{}\"`, not for `{protocol}`",
            words("and")
        );
        let instead = advice.iter().find(|(known, _)| *known == key);
        let help = instead.map_or_else(
            || format!("set `protocol = \"{}\"`, or remove `{key}`", words("or")),
            |(_, instead)| (*instead).to_owned(),
        );
        problems.error(&table.key_span(key), "E_PROTOCOL_KEY", message, help);
    }
}
