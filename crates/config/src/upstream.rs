//! Reads the settings of servers that do not depend on the client: addresses, health checks, the
//! monitor account and TLS.

use evenkeel_monitor::probe::AccountSource;

use crate::health;
use crate::keys::{self, Section};
use crate::plan::{Health, Monitor, SendProxy, ServerPlan, ServerTls};
use crate::plan::{Protocol, ProtocolInfo, ServicePlan};
use crate::problem::{Problems, SourceSpan};
use crate::reader::Table;
use crate::server::{self, ServerSpans};
use crate::server_tls;
use crate::setting::Setting;
use crate::sources::Sources;

/// Servers and their settings.
#[derive(Clone, Debug, Default)]
pub(crate) struct Upstream {
    servers: Vec<ServerPlan>,
    send_proxy: SendProxy,
    health: Health,
    monitor: Option<Monitor>,
    server_tls: ServerTls,
}

/// Places of the parts. `monitor` and `server_tls` are `None` if missing; other missing parts have
/// the place of the table.
#[derive(Clone, Debug, Default)]
pub(crate) struct UpstreamSpans {
    pub(crate) home: Home,
    /// Place of the table that lists the servers.
    pub(crate) table: SourceSpan,
    pub(crate) servers: Vec<ServerSpans>,
    pub(crate) servers_key: SourceSpan,
    pub(crate) probe: SourceSpan,
    pub(crate) probe_port: SourceSpan,
    pub(crate) probe_tls: SourceSpan,
    pub(crate) health: SourceSpan,
    pub(crate) monitor: SourceSpan,
    pub(crate) server_tls: SourceSpan,
}

/// Table of the file that lists the servers of a service.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Home {
    /// The service's own.
    #[default]
    Service,
    /// A `[[cluster]]` that the service names.
    Cluster,
}

impl Home {
    /// Returns the word for messages.
    pub(crate) fn noun(self) -> &'static str {
        match self {
            Home::Service => "service",
            Home::Cluster => "cluster",
        }
    }

    /// Returns the title of a table within it: `[service.health]`.
    pub(crate) fn title(self, key: &str) -> String {
        format!("[{}.{key}]", self.noun())
    }

    fn account_source(self) -> AccountSource {
        match self {
            Home::Service => AccountSource::Service,
            Home::Cluster => AccountSource::Cluster,
        }
    }

    /// Returns the keys of `health`, `monitor` and `server_tls`.
    fn sections(self) -> [&'static Section; 3] {
        match self {
            Home::Service => [&keys::HEALTH, &keys::MONITOR, &keys::SERVER_TLS],
            Home::Cluster => [
                &keys::CLUSTER_HEALTH,
                &keys::CLUSTER_MONITOR,
                &keys::CLUSTER_SERVER_TLS,
            ],
        }
    }
}

impl Upstream {
    /// Sets these servers and settings in a service.
    pub(crate) fn put_into(self, plan: &mut ServicePlan) {
        plan.servers = self.servers;
        plan.send_proxy = self.send_proxy;
        plan.health = self.health;
        plan.monitor = self.monitor;
        plan.server_tls = self.server_tls;
    }
}

/// Reads the keys and tables. The protocol determines the default probe.
pub(crate) fn read(
    (home, protocol): (Home, &Protocol),
    table: &Table<'_>,
    sources: &Sources,
    problems: &mut Problems,
) -> (Upstream, UpstreamSpans) {
    let [health_keys, monitor_keys, tls_keys] = home.sections();
    let mut spans = UpstreamSpans {
        home,
        table: table.span.clone(),
        servers_key: table.key_span("servers").or_else(|| table.span.clone()),
        health: table.span.clone(),
        probe: table.span.clone(),
        ..UpstreamSpans::default()
    };
    let mut upstream = Upstream {
        servers: read_servers(table, &mut spans, problems),
        send_proxy: SendProxy::read(table, "send_proxy", problems).unwrap_or_default(),
        health: Health::default(),
        monitor: None,
        server_tls: ServerTls::default(),
    };
    let has_account = table.value("monitor").is_some();
    upstream.health.probe = Some(ProtocolInfo::of(protocol).default_probe(has_account));
    if let Some(health) = table.table("health", health_keys, problems) {
        upstream.health = health::read(&health, upstream.health.probe_name(), problems);
        spans.health = health.span.clone();
        spans.probe_port = health.key_span("port");
        spans.probe_tls = health.key_span("tls");
        spans.probe = health.value_span("probe").or(health.span);
    }
    if let Some(monitor) = table.table("monitor", monitor_keys, problems) {
        upstream.monitor =
            health::read_monitor((home.account_source(), &monitor), sources, problems);
        spans.monitor = monitor.span;
    }
    if let Some(tls) = table.table("server_tls", tls_keys, problems) {
        upstream.server_tls = server_tls::read(&tls, sources, problems);
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
    // Routes may lead to the servers of other services.
    let may_be_missing = spans.home == Home::Service && table.value("route").is_some();
    if elements.is_empty() && !may_be_missing {
        let listed = "add `servers = [\"db1:3306\", \"db2:3306\"]`";
        let help = match spans.home {
            Home::Cluster => listed.to_owned(),
            Home::Service => {
                format!("{listed}, or name a [[cluster]]: `cluster = \"…\"`")
            }
        };
        let message = format!("this {} has no servers", spans.home.noun());
        problems.error(&spans.servers_key, "E_NO_SERVERS", message, help);
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
