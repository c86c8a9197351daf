//! Reads one `[[service]]` of the file.

use toml::de::DeValue;

use crate::cluster::ClusterDraft;
use crate::keys;
use crate::networks::network;
use crate::plan::{Keepalive, Listen, Protocol, Queue, ServerConnections, ServicePlan};
use crate::problem::{Problems, SourceSpan};
use crate::reader::{Table, wrong_type};
use crate::route::RouteSpans;
use crate::server;
use crate::setting::Settings;
use crate::sources::Sources;
use crate::upstream::UpstreamSpans;
use crate::{AddressError, cluster, database, http, protocol, role, route, rule};

/// Message that `listen` is missing.
pub(crate) const NO_LISTEN: &str = "this service has no `listen` address";

/// Advice for that.
pub(crate) const NO_LISTEN_HELP: &str =
    "add `listen = \"127.0.0.1:3306\"`, or `\"*:3306\"` for all addresses";

/// Service as far as it could be read, with the places of its parts.
#[derive(Debug)]
pub(crate) struct Draft {
    pub(crate) plan: ServicePlan,
    pub(crate) spans: ServiceSpans,
}

/// Places of the parts of a service. Missing parts have the place of the service.
#[derive(Debug, Default)]
pub(crate) struct ServiceSpans {
    pub(crate) name: SourceSpan,
    pub(crate) listen: Vec<SourceSpan>,
    /// `None` if the key is missing.
    pub(crate) listen_key: SourceSpan,
    pub(crate) upstream: UpstreamSpans,
    pub(crate) all_down: SourceSpan,
    pub(crate) role: SourceSpan,
    pub(crate) tls: SourceSpan,
    pub(crate) auth: SourceSpan,
    pub(crate) routes: Vec<RouteSpans>,
    pub(crate) service: SourceSpan,
}

/// Reads one `[[service]]` table.
pub(crate) fn read(
    table: &Table<'_>,
    clusters: &[ClusterDraft],
    sources: &Sources,
    problems: &mut Problems,
) -> Draft {
    let name = server::read_name(table, "service", "`status`, logs and metrics", problems);
    let servers = cluster::of_service(table, clusters, problems);
    let protocol = servers.protocol(table, problems);
    let is_known = protocol.is_some();
    let mut plan = ServicePlan::with_defaults(name, protocol.unwrap_or(Protocol::Tcp));
    let mut spans = ServiceSpans {
        service: table.span.clone(),
        name: table.value_span("name").or_else(|| table.span.clone()),
        listen_key: table.key_span("listen"),
        all_down: table.value_span("all_down"),
        role: table.value_span("role"),
        ..ServiceSpans::default()
    };
    if is_known {
        protocol::check_keys(&plan.protocol, table, problems);
    }
    read_listen(table, &mut plan, &mut spans, problems);
    plan.cluster = servers.cluster_name();
    let (upstream, upstream_spans) = servers.upstream(&plan.protocol, table, sources, problems);
    upstream.put_into(&mut plan);
    spans.upstream = upstream_spans;
    read_balance(table, &mut plan, problems);
    if is_known && plan.protocol_info().connections == ServerConnections::PerClient {
        plan.role = role::read(table, problems);
    }
    plan.read(table, problems);
    plan.accept_proxy_from = table
        .elements("accept_proxy_from")
        .iter()
        .filter_map(|v| network("accept_proxy_from", v, problems))
        .collect();
    read_tables(table, &mut plan, &mut spans, sources, problems);
    Draft { plan, spans }
}

fn read_listen(
    table: &Table<'_>,
    plan: &mut ServicePlan,
    spans: &mut ServiceSpans,
    problems: &mut Problems,
) {
    let elements = table.elements("listen");
    // Whether a route leads to the service is known only when all services are read.
    let may_be_missing = plan.database().is_none() && table.value("listen").is_none();
    if elements.is_empty() && !may_be_missing {
        let span = table.key_span("listen").or_else(|| table.span.clone());
        problems.error(&span, "E_MISSING_KEY", NO_LISTEN, NO_LISTEN_HELP);
    }
    for value in elements {
        let DeValue::String(text) = value.get_ref() else {
            let help = "write `listen = \"127.0.0.1:3306\"` or an array of such";
            wrong_type(
                "listen",
                "an address or an array of them",
                value,
                help,
                problems,
            );
            continue;
        };
        match text.parse::<Listen>() {
            Ok(listen) => {
                plan.listen.push(listen);
                spans.listen.push(Some(value.span()));
            }
            Err(AddressError { message, help }) => {
                problems.error(&Some(value.span()), "E_ADDRESS", message, help);
            }
        }
    }
}

fn read_balance(table: &Table<'_>, plan: &mut ServicePlan, problems: &mut Problems) {
    let name = table.word("balance", problems);
    if let Some(algorithm) = name.and_then(|name| name.parse().ok()) {
        plan.balance = algorithm;
    }
}

fn read_tables(
    table: &Table<'_>,
    plan: &mut ServicePlan,
    spans: &mut ServiceSpans,
    sources: &Sources,
    problems: &mut Problems,
) {
    if let Some(queue) = table.table("queue", &keys::QUEUE, problems) {
        plan.queue = Queue::of(&queue, problems);
    }
    if let Some(keepalive) = table.table("keepalive", &keys::KEEPALIVE, problems) {
        plan.keepalive = read_keepalive(&keepalive, problems);
    }
    spans.tls = table.key_span("tls");
    if let Some(http) = plan.protocol.http_mut() {
        let context = http::Context {
            balance: plan.balance,
            retries: plan.retries,
            sources,
        };
        (**http, spans.routes) = http::read(table, &context, problems);
    }
    if plan.protocol_info().connections == ServerConnections::PerClient {
        (plan.tls_routes, spans.routes) = route::tls::read(table, problems);
    }
    if let Some(database) = plan.protocol.database_mut() {
        spans.auth = table.key_span("auth");
        let monitor = plan.monitor.as_ref();
        **database = database::read(database.protocol, table, monitor, sources, problems);
        let splits = database.split.reads;
        database.rules = rule::read(table, &plan.servers, splits, problems);
    }
}

fn read_keepalive(table: &Table<'_>, problems: &mut Problems) -> Keepalive {
    for key in ["idle_ms", "interval_ms"] {
        check_seconds(table, key, problems);
    }
    Keepalive::of(table, problems)
}

/// Reports a number of milliseconds for which the kernel requires whole seconds.
fn check_seconds(table: &Table<'_>, key: &str, problems: &mut Problems) {
    let number = table.number(key, &mut Problems::new(None, ""));
    if let Some(number) = number.filter(|number| !number.is_multiple_of(1_000)) {
        let message = format!("`{key}` is {number}, but must be whole seconds");
        let help = format!("use {}", number.next_multiple_of(1_000));
        problems.error(&table.value_span(key), "E_RANGE", message, help);
    }
}
