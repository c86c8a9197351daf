//! Checks the configuration across tables, for duplicates and contradictions.

mod database;

use std::collections::HashMap;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use super::plan::{Address, Admin, AllDown, Listen, Probe, Role};
use super::problem::{Problems, SourceSpan};
use super::server::ServerSpans;
use super::service::Draft;

pub(super) use database::peers;

/// Address for which `localhost` stands.
const LOCALHOST: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);

/// Runs all checks that involve more than one key.
pub(super) fn whole(
    admin: &Admin,
    admin_span: &SourceSpan,
    drafts: &[Draft],
    problems: &mut Problems,
) {
    service_names(drafts, problems);
    listens(admin, admin_span, drafts, problems);
    for draft in drafts {
        servers_of_one(draft, problems);
        own_address(draft, problems);
        backups(draft, problems);
        waiting(draft, problems);
        probe_accounts(draft, problems);
        role_probes(draft, problems);
        database::check(draft, problems);
    }
    shared_servers(drafts, problems);
    lone_replicas(drafts, problems);
}

fn service_names(drafts: &[Draft], problems: &mut Problems) {
    let mut seen: HashMap<&str, &SourceSpan> = HashMap::new();
    for Draft { plan, spans } in drafts.iter().filter(|draft| !draft.plan.name.is_empty()) {
        if let Some(first) = seen.get(plan.name.as_str()) {
            let message = format!("two services are called `{}`", plan.name);
            let help = "give one of them another name";
            problems
                .error(&spans.name, "E_DUPLICATE_SERVICE", message, help)
                .with_other(first, "the other one is");
            continue;
        }
        seen.insert(&plan.name, &spans.name);
    }
}

fn listens(admin: &Admin, admin_span: &SourceSpan, drafts: &[Draft], problems: &mut Problems) {
    let mut seen: Vec<(Listen, SourceSpan, String)> = Vec::new();
    if let Some(address) = admin.listen {
        seen.push((
            Listen::Tcp(address),
            admin_span.clone(),
            "the admin port".to_owned(),
        ));
    }
    let consoles = [("PostgreSQL", admin.postgres), ("MySQL", admin.mysql)];
    for (clients, address) in consoles {
        let Some(address) = address else { continue };
        let (listen, span) = (Listen::Tcp(address), admin_span.clone());
        let owner = format!("the admin console for {clients}");
        if let Some(first) = seen.iter().find(|(other, ..)| other.overlaps(&listen)) {
            duplicate_listen(&listen, &span, first, problems);
        }
        seen.push((listen, span, owner));
    }
    let socket = Listen::Unix(admin.socket.clone());
    seen.push((socket, admin_span.clone(), "the control socket".to_owned()));
    for Draft { plan, spans } in drafts {
        for (index, listen) in plan.listen.iter().enumerate() {
            let span = spans.listen.get(index).cloned().flatten();
            let owner = format!("service `{}`", plan.name);
            if let Some(first) = seen.iter().find(|(other, ..)| other.overlaps(listen)) {
                duplicate_listen(listen, &span, first, problems);
            }
            seen.push((listen.clone(), span, owner));
        }
    }
}

fn duplicate_listen(
    listen: &Listen,
    span: &SourceSpan,
    (other, other_span, owner): &(Listen, SourceSpan, String),
    problems: &mut Problems,
) {
    let address = if other == listen {
        "the same address".to_owned()
    } else {
        format!("{other}")
    };
    let message = format!("{listen} is taken: {owner} listens on {address}");
    let help = match (owner.starts_with("the admin"), listen) {
        (true, _) => "use another port, or set `listen = \"off\"` or another port in [admin]",
        (_, Listen::Unix(_)) => "use another path",
        _ => "use another port, or another address of this machine",
    };
    problems
        .error(span, "E_DUPLICATE_LISTEN", message, help)
        .with_other(other_span, "that one is");
}

fn servers_of_one(Draft { plan, spans }: &Draft, problems: &mut Problems) {
    let mut addresses: HashMap<&Address, SourceSpan> = HashMap::new();
    let mut names: HashMap<&str, SourceSpan> = HashMap::new();
    for (index, server) in plan.servers.iter().enumerate() {
        let ServerSpans { address, name, .. } = spans_of(spans.upstream.servers.get(index));
        let first_address = addresses.insert(&server.address, address.clone());
        let first_name = names.insert(&server.name, name.clone());
        if let Some(first) = first_address {
            let message = format!("{} is listed twice in this service", server.address);
            let help = "list it once; `weight = 2` gives it twice the share";
            problems
                .error(&address, "E_DUPLICATE_SERVER", message, help)
                .with_other(&first, "the first is");
        } else if let Some(first) = first_name {
            let message = format!("two servers of this service are called `{}`", server.name);
            let help = "give one of them another name";
            problems
                .error(&name, "E_DUPLICATE_SERVER", message, help)
                .with_other(&first, "the first is");
        }
    }
}

fn spans_of(spans: Option<&ServerSpans>) -> ServerSpans {
    spans.cloned().unwrap_or_default()
}

/// Reports a service that is its own server: it would connect to itself until no file descriptor is
/// left.
fn own_address(Draft { plan, spans }: &Draft, problems: &mut Problems) {
    for (index, server) in plan.servers.iter().enumerate() {
        let Some(listen) = plan
            .listen
            .iter()
            .find(|listen| reaches(&server.address, listen))
        else {
            continue;
        };
        let message = format!(
            "{} is the address this service itself listens on ({listen})",
            server.address
        );
        let help = "name the server's address, not the one that clients use";
        let span = spans_of(spans.upstream.servers.get(index)).address;
        problems.error(&span, "E_LOOP", message, help);
    }
}

fn reaches(address: &Address, listen: &Listen) -> bool {
    let Address::Tcp { host, port } = address else {
        return matches!((address, listen), (Address::Unix(a), Listen::Unix(b)) if a == b);
    };
    let same = Listen::Tcp(SocketAddr::new(host.parse().unwrap_or(LOCALHOST), *port));
    let known = address.socket_addr().is_some() || host == "localhost";
    // A non-loopback address may belong to another machine, so it must be identical.
    known && (same == *listen || (address.is_local() && same.overlaps(listen)))
}

fn backups(Draft { plan, spans }: &Draft, problems: &mut Problems) {
    if plan.servers.is_empty() {
        return;
    }
    if plan.servers.iter().all(|server| server.backup) {
        let message = "all servers of this service are backups";
        let help = "remove `backup = true` from those that should serve";
        problems.warning(&spans.upstream.servers_key, "W_ALL_BACKUP", message, help);
    }
    if plan.servers.iter().all(|server| server.weight == 0) {
        let message = "all servers of this service have weight 0: it will not serve any client";
        let help = "give at least one a weight of 1 or more";
        problems.warning(&spans.upstream.servers_key, "W_ALL_ZERO", message, help);
    }
}

fn waiting(Draft { plan, spans }: &Draft, problems: &mut Problems) {
    if plan.all_down == AllDown::Wait && plan.queue.length == 0 {
        let message =
            "`all_down = \"wait\"` has no effect: the queue is disabled by `queue.length = 0`";
        let help = "set [service.queue] length to 1 or more, or remove `all_down`";
        problems.warning(&spans.all_down, "W_NO_EFFECT", message, help);
    }
}

fn probe_accounts(Draft { plan, spans }: &Draft, problems: &mut Problems) {
    let probe = plan.health.probe.name();
    let logs_in = matches!(
        plan.health.probe,
        Probe::Mysql { .. } | Probe::Postgres { .. }
    );
    if logs_in && spans.upstream.monitor.is_none() && plan.monitor.is_none() {
        let message = format!("`probe = \"{probe}\"` requires an account to log in with");
        let help =
            "add [service.monitor] with `user` and `password_file`, or use `probe = \"tcp\"`";
        problems.error(&spans.upstream.probe, "E_NO_MONITOR", message, help);
    }
    if logs_in || plan.database().is_some() {
        return;
    }
    let idle = [
        (&spans.upstream.monitor, "[service.monitor]"),
        (&spans.upstream.server_tls, "[service.server_tls]"),
    ];
    for (span, title) in idle {
        if span.is_some() {
            let message = format!("{title} has no effect: `probe = \"{probe}\"` does not log in");
            let help =
                "set `probe = \"mysql\"` or `\"postgres\"` in [service.health], or remove it";
            problems.warning(span, "W_NO_EFFECT", message, help);
        }
    }
}

/// Reports a role without a database probe: only a database can report its role, to an account that
/// queries it.
fn role_probes(Draft { plan, spans }: &Draft, problems: &mut Problems) {
    let is_query = matches!(
        plan.health.probe,
        Probe::Mysql { .. } | Probe::Postgres { .. }
    );
    if plan.role != Role::Any && !is_query {
        let message = format!(
            "`role = \"{}\"` requires a database probe, and `probe = \"{}\"` is not one",
            plan.role.name(),
            plan.health.probe.name()
        );
        let help =
            "set `probe = \"mysql\"` or `\"postgres\"` in [service.health], with [service.monitor]";
        problems.error(&spans.role, "E_ROLE_PROBE", message, help);
    }
}

/// Reports services of replicas that share no server with a service of primaries: the lag of their
/// replicas cannot be determined.
fn lone_replicas(drafts: &[Draft], problems: &mut Problems) {
    let is_primary = |draft: &&Draft| matches!(draft.plan.role, Role::Primary { .. });
    let listed = |draft: &Draft| -> Vec<Address> {
        let servers = draft.plan.servers.iter();
        servers.map(|server| server.address.clone()).collect()
    };
    let written: Vec<Address> = drafts.iter().filter(is_primary).flat_map(listed).collect();
    for draft in drafts {
        let reads = matches!(draft.plan.role, Role::Replica { .. });
        let shares = listed(draft).iter().any(|one| written.contains(one));
        if reads && !shares && !written.is_empty() {
            let message = "no server of this service is in a service with `role = \"primary\"`: \
                           the lag of its replicas cannot be determined";
            let help = "list all servers of the cluster in both services: roles decide which are \
                        used";
            problems.warning(&draft.spans.role, "W_ROLE_ALONE", message, help);
        }
    }
}

/// Reports contradictions between services with the same address, which share its probes, its state
/// and its limit.
fn shared_servers(drafts: &[Draft], problems: &mut Problems) {
    let mut seen: HashMap<&Address, (usize, usize)> = HashMap::new();
    for (draft_index, draft) in drafts.iter().enumerate() {
        let mut is_reported = false;
        for (index, server) in draft.plan.servers.iter().enumerate() {
            match seen.get(&server.address) {
                Some((first, _)) if *first == draft_index => {}
                Some((first, server_index)) => {
                    let first = (&drafts[*first], *server_index);
                    shared_limit(first, (draft, index), problems);
                    // One report per service is enough, even if it shares several servers.
                    is_reported =
                        is_reported || shared_settings(first.0, draft, &server.address, problems);
                }
                None => {
                    seen.insert(&server.address, (draft_index, index));
                }
            }
        }
    }
}

fn shared_limit(first: (&Draft, usize), second: (&Draft, usize), problems: &mut Problems) {
    let (a, b) = (
        &first.0.plan.servers[first.1],
        &second.0.plan.servers[second.1],
    );
    if a.max_connections == b.max_connections {
        return;
    }
    let words = |limit: Option<u32>| limit.map_or("no limit".to_owned(), |limit| limit.to_string());
    let message = format!(
        "{} has `max_connections` {} here, but {} in service `{}`",
        b.address,
        words(b.max_connections),
        words(a.max_connections),
        first.0.plan.name
    );
    let help = "a server has one limit for all services: set the same value in both";
    let span = |(draft, index): (&Draft, usize)| {
        spans_of(draft.spans.upstream.servers.get(index)).max_connections
    };
    problems
        .error(&span(second), "E_SHARED_SERVER", message, help)
        .with_other(&span(first), "the other one is");
}

/// Reports different settings for a shared server. Returns whether there was one.
fn shared_settings(
    first: &Draft,
    second: &Draft,
    address: &Address,
    problems: &mut Problems,
) -> bool {
    let (a, b) = (&first.plan, &second.plan);
    let or_service =
        |span: &SourceSpan, draft: &Draft| span.clone().or(draft.spans.service.clone());
    let monitor = |draft: &Draft| or_service(&draft.spans.upstream.monitor, draft);
    let tls = |draft: &Draft| or_service(&draft.spans.upstream.server_tls, draft);
    let differing = [
        (
            "health",
            a.health != b.health,
            first.spans.upstream.health.clone(),
            second.spans.upstream.health.clone(),
        ),
        (
            "monitor",
            a.monitor != b.monitor,
            monitor(first),
            monitor(second),
        ),
        (
            "server_tls",
            a.server_tls != b.server_tls,
            tls(first),
            tls(second),
        ),
    ];
    let mut is_reported = false;
    for (key, _, first_place, second_place) in differing.into_iter().filter(|one| one.1) {
        let message = format!(
            "service `{}` shares {address} with service `{}`, but its [service.{key}] differs",
            b.name, a.name
        );
        let help = format!(
            "services that list the same server share its probes: set the same [service.{key}] in \
             both"
        );
        problems
            .error(&second_place, "E_SHARED_SERVER", message, help)
            .with_other(&first_place, "the other one is");
        is_reported = true;
    }
    is_reported
}
