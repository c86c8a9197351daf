//! Builds the tables of SHOW, with those columns of PgBouncer that apply here, followed by columns
//! specific to Evenkeel.

mod figures;
mod tables;
mod variables;

use std::collections::{BTreeMap, BTreeSet};

pub(super) use tables::{HELP, SCHEMA, Show, column_type};
pub(super) use variables::VARIABLES;

use super::Console;
use super::error::ConsoleError;
use super::stats::{DatabaseCounters, totals};
use crate::log::rfc3339;
use crate::status::{
    ClientStatus, Connections, DatabaseStatus, RuleStatus, ServerStatus, ServiceStatus, Status,
    StatusSelection,
};

/// State of clients that wait for a primary, which no pool counts.
const FOR_PRIMARY: &str = "waiting for a primary";

/// Table to send to a client.
pub(super) struct Table {
    pub(super) columns: Vec<String>,
    pub(super) rows: Vec<Row>,
}

pub(super) type Row = Vec<Option<String>>;

/// Returns a text as a table, one row per line.
pub(super) fn help_table(all: &str) -> Table {
    Table {
        columns: vec!["help".to_owned()],
        rows: all.lines().map(|line| vec![text(line)]).collect(),
    }
}

/// Returns the current rows of the given tables.
pub(super) async fn rows(shows: &[Show], console: &Console) -> Result<Vec<Vec<Row>>, ConsoleError> {
    let status = console.control.status(StatusSelection::all()).await?;
    let needs_connections = shows.iter().any(|show| show.needs_connections());
    let mut pooled = Vec::new();
    for service in &status.services {
        let Some(database) = &service.database else {
            continue;
        };
        let connections = match needs_connections {
            // A service that has been removed meanwhile has no connections.
            true => console
                .control
                .connections(&service.name)
                .await?
                .unwrap_or_default(),
            false => Connections::default(),
        };
        pooled.push(PooledService {
            service,
            database,
            connections,
        });
    }
    let mut all = Vec::new();
    for show in shows {
        all.push(rows_of(*show, &status, &pooled, console).await?);
    }
    Ok(all)
}

async fn rows_of(
    show: Show,
    status: &Status,
    pooled: &[PooledService<'_>],
    console: &Console,
) -> Result<Vec<Row>, ConsoleError> {
    Ok(match show {
        Show::Clients => each(pooled, |one| clients(one, status.now_unix_ms)),
        Show::Config => config(status, pooled),
        Show::Databases => each(pooled, databases),
        Show::Digests => figures::digests(pooled, console).await?,
        Show::Lists => lists(pooled),
        Show::Pools => each(pooled, pools),
        Show::Processlist => each(pooled, processes),
        Show::Rules => each(pooled, rules),
        Show::Schemas => vec![vec![text(SCHEMA)]],
        Show::Servers => each(pooled, |one| servers(one, status.now_unix_ms)),
        Show::Stats | Show::StatsAverages | Show::StatsTotals => {
            let totals = totals(status);
            let row = |(name, sum): (&String, &DatabaseCounters)| stats(show, name, *sum, console);
            totals.iter().map(row).collect()
        }
        Show::StatsServers => each(pooled, figures::servers),
        Show::StatsUsers => each(pooled, figures::users),
        Show::Tables => Show::names().map(|name| vec![Some(name)]).collect(),
        Show::Users => each(pooled, users),
        Show::Variables => variables::rows(),
        Show::Version => vec![vec![text(format!("Evenkeel {}", status.version))]],
        Show::Warnings => Vec::new(),
    })
}

/// Service with connection pools.
struct PooledService<'a> {
    service: &'a ServiceStatus,
    database: &'a DatabaseStatus,
    connections: Connections,
}

impl PooledService<'_> {
    fn server(&self, name: &str) -> Option<&ServerStatus> {
        self.service.servers.iter().find(|one| one.name == name)
    }

    /// Returns the host and port of a server.
    fn address_of(&self, name: &str) -> (Option<String>, Option<String>) {
        let server = self.server(name);
        let resolved = server.and_then(|one| one.resolved.first());
        match resolved.and_then(|address| address.rsplit_once(':')) {
            Some((host, port)) => {
                let host = host.trim_matches(['[', ']']);
                (text(host), text(port))
            }
            None => (server.map(|one| one.address.clone()), None),
        }
    }

    /// Returns the database that keys a client's pool. Empty if all databases share a pool.
    fn pool_database<'c>(&self, client: &'c ClientStatus) -> &'c str {
        match self.service.has_database_pools() {
            true => &client.database,
            false => "",
        }
    }

    fn clients_of(&self, is_meant: impl Fn(&ClientStatus) -> bool) -> usize {
        self.connections
            .clients
            .iter()
            .filter(|one| is_meant(one))
            .count()
    }

    fn is_paused(&self, database: &str) -> bool {
        self.database.all_paused || self.database.paused.iter().any(|name| name == database)
    }

    /// Returns all known databases.
    fn databases(&self) -> BTreeSet<&str> {
        let pools = self.database.pools.iter().map(|one| &*one.database);
        let used = self.database.users.iter().map(|one| &*one.database);
        let clients = self.connections.clients.iter().map(|one| &*one.database);
        let paused = self.database.paused.iter().map(String::as_str);
        let all = pools.chain(used).chain(clients).chain(paused);
        all.filter(|name| !name.is_empty()).collect()
    }

    fn users(&self) -> BTreeSet<&str> {
        let pools = self.database.pools.iter().map(|one| &*one.user);
        let used = self.database.users.iter().map(|one| &*one.user);
        pools.chain(used).collect()
    }
}

fn each(pooled: &[PooledService<'_>], rows: impl Fn(&PooledService<'_>) -> Vec<Row>) -> Vec<Row> {
    pooled.iter().flat_map(rows).collect()
}

fn text(text: impl ToString) -> Option<String> {
    Some(text.to_string())
}

/// Returns the time `ago_ms` before now, in PgBouncer's format.
fn before(now_unix_ms: u64, ago_ms: u64) -> Option<String> {
    let at = rfc3339(now_unix_ms.saturating_sub(ago_ms));
    let (date, time) = at.split_once('T')?;
    Some(format!("{date} {} UTC", time.get(..8)?))
}

/// Returns whole seconds, and the remaining microseconds.
fn split(ms: u64) -> (Option<String>, Option<String>) {
    (text(ms / 1_000), text(ms % 1_000 * 1_000))
}

fn is_waiting(client: &ClientStatus) -> bool {
    client.state.starts_with("waiting")
}

/// Returns PgBouncer's name for the state of a client.
fn state(client: &ClientStatus) -> &'static str {
    match &*client.state {
        "idle" => "idle",
        _ if is_waiting(client) => "waiting",
        _ => "active",
    }
}

fn clients(one: &PooledService<'_>, now_unix_ms: u64) -> Vec<Row> {
    let row = |client: &ClientStatus| {
        let (address, port) = match client.peer.rsplit_once(':') {
            Some((address, port)) => (address.trim_matches(['[', ']']), Some(port)),
            None => (&*client.peer, None),
        };
        let waits_ms = if is_waiting(client) {
            client.state_for_ms
        } else {
            0
        };
        let (wait, wait_us) = split(waits_ms);
        let pin_names = client.pin_names();
        vec![
            text("C"),
            text(&client.user),
            text(&client.database),
            text(state(client)),
            text(address),
            port.and_then(text),
            before(now_unix_ms, client.age_ms),
            before(now_unix_ms, client.state_for_ms),
            wait,
            wait_us,
            text(0), // close_needed
            client.server_pid.and_then(text),
            text(client.id),
            text(&client.state),
            client.server.clone(),
            (!pin_names.is_empty()).then_some(pin_names),
            client
                .pinned_by
                .first()
                .map(|cause| cause.text().to_owned()),
            text(&one.service.name),
            text(&client.application),
        ]
    };
    one.connections.clients.iter().map(row).collect()
}

/// Returns the clients in the format of MySQL's process list. Query texts are not stored.
fn processes(one: &PooledService<'_>) -> Vec<Row> {
    let row = |client: &ClientStatus| {
        let command = match state(client) {
            "idle" => "Sleep",
            _ => "Query",
        };
        vec![
            text(client.id),
            text(&client.user),
            text(&client.peer),
            text(&client.database),
            text(command),
            text(client.state_for_ms / 1_000),
            text(&client.state),
            None, // Info
        ]
    };
    one.connections.clients.iter().map(row).collect()
}

fn servers(one: &PooledService<'_>, now_unix_ms: u64) -> Vec<Row> {
    let active = one.connections.clients.iter().filter_map(|client| {
        let server = client.server.as_ref()?;
        let (host, port) = one.address_of(server);
        Some(vec![
            text("S"),
            text(&client.user),
            text(&client.database),
            text("active"),
            host,
            port,
            None, // connect_time
            before(now_unix_ms, client.state_for_ms),
            client.server_pid.and_then(text),
            text(client.id),
            text(server),
            text(&one.service.name),
        ])
    });
    let idle = one.connections.idle.iter().map(|idle| {
        let (host, port) = one.address_of(&idle.server);
        vec![
            text("S"),
            text(&idle.user),
            text(&idle.database),
            text("idle"),
            host,
            port,
            before(now_unix_ms, idle.age_ms),
            None, // request_time
            idle.server_pid.and_then(text),
            None, // client_id
            text(&idle.server),
            text(&one.service.name),
        ]
    });
    active.chain(idle).collect()
}

/// Sum for a user and a database over all servers.
#[derive(Default)]
struct PoolSum {
    connections: u64,
    idle: u64,
    opening: u64,
    longest_wait_ms: u64,
    waiting: u64,
    active: u64,
}

fn pools(one: &PooledService<'_>) -> Vec<Row> {
    let mut sums: BTreeMap<(&str, &str), PoolSum> = BTreeMap::new();
    for pool in &one.database.pools {
        let sum = sums.entry((&pool.database, &pool.user)).or_default();
        sum.connections += pool.connections;
        sum.idle += pool.idle;
        sum.opening += pool.opening;
        // Includes clients that are still logging in.
        sum.waiting += pool.waiting;
        sum.longest_wait_ms = sum.longest_wait_ms.max(pool.longest_wait_ms);
    }
    for client in &one.connections.clients {
        let pool = (one.pool_database(client), &*client.user);
        let sum = sums.entry(pool).or_default();
        if client.state == FOR_PRIMARY {
            sum.waiting += 1;
            sum.longest_wait_ms = sum.longest_wait_ms.max(client.state_for_ms);
        } else if !is_waiting(client) {
            sum.active += 1;
        }
    }
    let row = |((database, user), sum): (&(&str, &str), &PoolSum)| {
        let (maxwait, maxwait_us) = split(sum.longest_wait_ms);
        let used = sum.connections.saturating_sub(sum.idle + sum.opening);
        vec![
            text(database),
            text(user),
            text(sum.active),
            text(sum.waiting),
            text(used), // sv_active
            text(sum.idle),
            text(0),           // sv_used
            text(0),           // sv_tested
            text(sum.opening), // sv_login
            maxwait,
            maxwait_us,
            text(&one.database.pool_mode),
            text(&one.service.name),
        ]
    };
    sums.iter().map(row).collect()
}

fn databases(one: &PooledService<'_>) -> Vec<Row> {
    let roles = one.service.servers.iter();
    let mut primaries = roles.filter(|server| {
        let role = server.role.as_ref();
        role.is_some_and(|role| role.role == crate::status::RoleName::Primary)
    });
    let first = primaries.next().or(one.service.servers.first());
    let (host, port) = first.map_or((None, None), |server| one.address_of(&server.name));
    let row = |name: &str| {
        let of = one
            .database
            .pools
            .iter()
            .filter(|pool| pool.database == name);
        let connections: u64 = of.map(|pool| pool.connections).sum();
        vec![
            text(name),
            host.clone(),
            port.clone(),
            text(name),
            None, // force_user
            text(one.database.pool_size),
            text(one.database.pool_min_idle),
            text(0), // reserve_pool_size
            text(&one.database.pool_mode),
            text(connections),
            text(one.clients_of(|client| client.database == name)),
            text(u8::from(one.is_paused(name))),
            text(0), // disabled
            text(&one.service.name),
        ]
    };
    one.databases().into_iter().map(row).collect()
}

fn users(one: &PooledService<'_>) -> Vec<Row> {
    let row = |name: &str| {
        let of = one.database.pools.iter().filter(|pool| pool.user == name);
        let connections: u64 = of.map(|pool| pool.connections).sum();
        vec![
            text(name),
            text(&one.database.pool_mode),
            text(connections),
            text(one.clients_of(|client| client.user == name)),
            text(&one.service.name),
        ]
    };
    one.users().into_iter().map(row).collect()
}

fn rules(one: &PooledService<'_>) -> Vec<Row> {
    let row = |rule: &RuleStatus| {
        vec![
            text(&one.service.name),
            text(&rule.name),
            text(u8::from(rule.active)),
            text(&rule.action),
            text(rule.hits_total),
        ]
    };
    one.database.rules.iter().map(row).collect()
}

fn stats(show: Show, name: &str, sum: DatabaseCounters, console: &Console) -> Row {
    let mut row = vec![text(name)];
    if show != Show::StatsAverages {
        row.extend(sum.columns().map(text));
    }
    if show != Show::StatsTotals {
        row.extend(console.averages.of(name).columns().map(text));
    }
    row
}

fn lists(pooled: &[PooledService<'_>]) -> Vec<Row> {
    let count = |of: &dyn Fn(&PooledService<'_>) -> usize| pooled.iter().map(of).sum::<usize>();
    let connections = |of: fn(&crate::status::PoolStatus) -> u64| -> u64 {
        let pools = pooled.iter().flat_map(|one| &one.database.pools);
        pools.map(of).sum()
    };
    let idle = connections(|pool| pool.idle);
    let open = connections(|pool| pool.connections);
    vec![
        vec![text("databases"), text(count(&|one| one.databases().len()))],
        vec![text("users"), text(count(&|one| one.users().len()))],
        vec![text("pools"), text(count(&|one| pools(one).len()))],
        vec![text("free_clients"), text(0)],
        vec![
            text("used_clients"),
            text(count(&|one| one.connections.clients.len())),
        ],
        vec![text("free_servers"), text(idle)],
        vec![text("used_servers"), text(open.saturating_sub(idle))],
    ]
}

fn config(status: &Status, pooled: &[PooledService<'_>]) -> Vec<Row> {
    let mut rows = Vec::new();
    let mut put = |key: String, value: &dyn ToString, default: &str, changeable: &str| {
        rows.push(vec![
            Some(key),
            text(value.to_string()),
            text(default),
            text(changeable),
        ]);
    };
    let file = status.config.path.clone().unwrap_or_default();
    put("config_file".into(), &file, "", "no");
    put("engine.io".into(), &status.engine.io, "auto", "no");
    let workers = status.engine.workers.len();
    put("engine.workers".into(), &workers, "one per core", "no");
    for PooledService {
        service, database, ..
    } in pooled
    {
        let key = |name: &str| format!("{}.{name}", service.name);
        put(key("listen"), &service.listen.join(", "), "", "yes");
        let limit = service.sessions.limit;
        put(key("max_connections"), &limit, "10000", "yes");
        put(key("pool.mode"), &database.pool_mode, "transaction", "yes");
        put(key("pool.size"), &database.pool_size, "20", "yes");
        put(key("pool.min_idle"), &database.pool_min_idle, "0", "yes");
    }
    rows
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_moment_is_written_as_pgbouncer_does() {
        let now = 1_767_229_200_000;
        assert_eq!(before(now, 1_000).unwrap(), "2026-01-01 00:59:59 UTC");
    }
}
