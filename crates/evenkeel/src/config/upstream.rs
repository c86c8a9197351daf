//! Reads the settings of servers that do not depend on the client: addresses, health checks, the
//! monitor account and TLS.

use super::health;
use super::keys;
use super::plan::{Health, Monitor, Probe, SendProxy, ServerPlan, ServerTls};
use super::plan::{ServicePlan, SqlProtocol};
use super::problem::{Problems, SourceSpan};
use super::reader::Table;
use super::server::{self, ServerSpans};
use super::sources::Sources;

/// Servers and their settings.
#[derive(Clone, Debug)]
pub(super) struct Upstream {
    servers: Vec<ServerPlan>,
    send_proxy: SendProxy,
    health: Health,
    monitor: Option<Monitor>,
    server_tls: ServerTls,
}

/// Places of the parts. `monitor` and `server_tls` are `None` if missing; other missing parts have
/// the place of the table.
#[derive(Clone, Debug, Default)]
pub(super) struct UpstreamSpans {
    pub(super) servers: Vec<ServerSpans>,
    pub(super) servers_key: SourceSpan,
    pub(super) probe: SourceSpan,
    pub(super) health: SourceSpan,
    pub(super) monitor: SourceSpan,
    pub(super) server_tls: SourceSpan,
}

impl Upstream {
    /// Sets these servers and settings in a service.
    pub(super) fn put_into(self, plan: &mut ServicePlan) {
        plan.servers = self.servers;
        plan.send_proxy = self.send_proxy;
        plan.health = self.health;
        plan.monitor = self.monitor;
        plan.server_tls = self.server_tls;
    }
}

/// Reads the keys and tables. `sql` is the protocol of a database, whose probe is the default.
pub(super) fn read(
    sql: Option<SqlProtocol>,
    table: &Table<'_>,
    sources: &Sources,
    problems: &mut Problems,
) -> (Upstream, UpstreamSpans) {
    let mut spans = UpstreamSpans {
        servers_key: table.key_span("servers").or_else(|| table.span.clone()),
        health: table.span.clone(),
        probe: table.span.clone(),
        ..UpstreamSpans::default()
    };
    let mut upstream = Upstream {
        servers: read_servers(table, &mut spans, problems),
        send_proxy: read_send_proxy(table, problems),
        health: Health::default(),
        monitor: None,
        server_tls: ServerTls::default(),
    };
    if let (Some(sql), true) = (sql, table.value("monitor").is_some()) {
        upstream.health.probe = Probe::of(sql);
    }
    if let Some(health) = table.table("health", &keys::HEALTH, problems) {
        upstream.health = health::read(&health, &upstream.health, problems);
        spans.health = health.span.clone();
        spans.probe = health.value_span("probe").or(health.span);
    }
    if let Some(monitor) = table.table("monitor", &keys::MONITOR, problems) {
        upstream.monitor = health::read_monitor(&monitor, sources, problems);
        spans.monitor = monitor.span;
    }
    if let Some(tls) = table.table("server_tls", &keys::SERVER_TLS, problems) {
        upstream.server_tls = health::read_server_tls(&tls, sources, problems);
        spans.server_tls = tls.span;
    }
    (upstream, spans)
}

fn read_servers(
    table: &Table<'_>,
    spans: &mut UpstreamSpans,
    problems: &mut Problems,
) -> Vec<ServerPlan> {
    let elements = table.elements("servers");
    if elements.is_empty() {
        let help = "add `servers = [\"db1:3306\", \"db2:3306\"]`";
        problems.error(
            &spans.servers_key,
            "E_NO_SERVERS",
            "this service has no servers",
            help,
        );
    }
    let mut servers = Vec::new();
    for value in elements {
        if let Some((server, span)) = server::read(value, problems) {
            servers.push(server);
            spans.servers.push(span);
        }
    }
    servers
}

fn read_send_proxy(table: &Table<'_>, problems: &mut Problems) -> SendProxy {
    match table.word("send_proxy", problems) {
        Some("v1") => SendProxy::V1,
        Some("v2") => SendProxy::V2,
        _ => SendProxy::Off,
    }
}
