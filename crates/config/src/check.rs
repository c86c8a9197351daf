//! Checks the configuration across tables, for duplicates and contradictions.

mod acme;
mod database;
mod probes;
mod routes;
mod shared;

use std::collections::HashMap;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use crate::plan::{Address, Admin, AllDown, Listen, Role};
use crate::problem::{Problems, SourceSpan};
use crate::server::ServerSpans;
use crate::service::Draft;

pub(crate) use self::acme::check as acme;
pub(crate) use database::peers;
pub(crate) use shared::clusters;

/// Address for which `localhost` stands.
const LOCALHOST: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);

/// Runs all checks that involve more than one key.
pub(crate) fn whole(
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
        probes::check(draft, problems);
        role_probes(draft, problems);
        database::check(draft, problems);
    }
    shared::servers(drafts, problems);
    lone_replicas(drafts, problems);
    routes::check(drafts, problems);
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
    let home = spans.upstream.home.noun();
    let mut addresses: HashMap<&Address, SourceSpan> = HashMap::new();
    let mut names: HashMap<&str, SourceSpan> = HashMap::new();
    for (index, server) in plan.servers.iter().enumerate() {
        let ServerSpans { address, name, .. } = spans_of(spans.upstream.servers.get(index));
        let first_address = addresses.insert(&server.address, address.clone());
        let first_name = names.insert(&server.name, name.clone());
        if let Some(first) = first_address {
            let message = format!("{} is listed twice in this {home}", server.address);
            let help = "list it once; `weight = 2` gives it twice the share";
            problems
                .error(&address, "E_DUPLICATE_SERVER", message, help)
                .with_other(&first, "the first is");
        } else if let Some(first) = first_name {
            let message = format!("two servers of this {home} are called `{}`", server.name);
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
            "{} is the address that service `{}` itself listens on ({listen})",
            server.address, plan.name
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
    let home = spans.upstream.home.noun();
    if plan.servers.iter().all(|server| server.backup) {
        let message = format!("all servers of this {home} are backups");
        let help = "remove `backup = true` from those that should serve";
        problems.warning(&spans.upstream.servers_key, "W_ALL_BACKUP", message, help);
    }
    if plan.servers.iter().all(|server| server.weight == 0) {
        let message =
            format!("all servers of this {home} have weight 0: it will not serve any client");
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

/// Reports a role without a database probe: only a database can report its role, to an account that
/// queries it.
fn role_probes(Draft { plan, spans }: &Draft, problems: &mut Problems) {
    if plan.role != Role::Any && plan.health.probe_protocol().is_none() {
        let message = format!(
            "`role = \"{}\"` requires a database probe, and `probe = \"{}\"` is not one",
            plan.role.name(),
            plan.health.probe_name()
        );
        let home = spans.upstream.home;
        let help = format!(
            "set `probe = \"mysql\"` or `\"postgres\"` in {}, with {}",
            home.title("health"),
            home.title("monitor")
        );
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
            let help = "list all servers in one [[cluster]] that both services name: roles decide \
                        which are used";
            problems.warning(&draft.spans.role, "W_ROLE_ALONE", message, help);
        }
    }
}
