//! Builds a plan without a file: one service from the flags of `evenkeel run --listen … --to …`.

mod text;
mod wording;

use std::env;
use std::path::PathBuf;

use evenkeel_monitor::probe::AccountSource;
use evenkeel_policy::balance::Algorithm;

use crate::file::{self, Loaded};
use crate::nearest::nearest;
use crate::plan::{
    Admin, Engine, Listen, Log, Monitor, PeersPlan, Plan, Protocol, ProtocolInfo, Secret,
    ServerPlan, ServicePlan, SqlProtocol,
};
use crate::problem::Problems;
use crate::reader::listed;
use crate::service::{Draft, ServiceSpans};
use crate::sources::Sources;
use crate::{AddressError, auth, check, top};

/// Flags as typed.
#[derive(Clone, Debug, Default)]
pub struct Flags {
    /// Addresses `tcp://address:port`, `postgres://…` or `mysql://…`; tcp without a scheme.
    pub listen: Vec<String>,
    /// Addresses of servers.
    pub to: Vec<String>,
    /// Name of an algorithm.
    pub balance: Option<String>,
    /// Address, or `off`.
    pub admin: Option<String>,
    /// Path of the control socket.
    pub socket: Option<PathBuf>,
    /// Word of `mode` in `[service.server_tls]`.
    pub server_tls: Option<String>,
    /// Path of `ca` in `[service.server_tls]`.
    pub server_ca: Option<PathBuf>,
    /// `fingerprints` in `[service.server_tls]`.
    pub server_fingerprints: Vec<String>,
    /// Paths of `certificate` and `key` in `[service.tls]`.
    pub tls: Option<(PathBuf, PathBuf)>,
    /// Password of the account. `None`: from the environment.
    pub password: Option<Secret>,
}

impl Flags {
    /// Returns the protocol and the account of a database service: the user of the first URL that
    /// names one, or else that of the environment.
    pub fn account(&self) -> Option<(SqlProtocol, String)> {
        self.account_with(&|name| env::var(name).ok())
    }

    fn account_with(
        &self,
        variable: &impl Fn(&str) -> Option<String>,
    ) -> Option<(SqlProtocol, String)> {
        let protocol = read_protocol(self, &mut Problems::new(None, ""));
        let protocol = protocol.database()?.protocol;
        let mut urls = self.to.iter().filter_map(|text| text.split_once("://"));
        let of_url = urls.find_map(|(_, rest)| rest.rsplit_once('@'));
        let of_url = of_url.map(|(account, _)| account.split(':').take(1).collect());
        let user = of_url.or_else(|| variable(variables(protocol).0));
        Some((protocol, user.filter(|user| !user.is_empty())?))
    }
}

/// Returns the variables of an account's name and password, which the servers' own clients use.
pub fn variables(protocol: SqlProtocol) -> (&'static str, &'static str) {
    match protocol {
        SqlProtocol::Postgres => ("PGUSER", "PGPASSWORD"),
        SqlProtocol::Mysql => ("MYSQL_USER", "MYSQL_PWD"),
    }
}

/// Builds the plan that a file with these values would result in. The account for PostgreSQL
/// servers is from the URL or from libpq's variables `PGUSER` and `PGPASSWORD`; for MySQL servers
/// from the URL or from `MYSQL_USER` and `MYSQL_PWD`.
pub fn from_flags(flags: &Flags) -> Loaded {
    from_flags_with(flags, |name| env::var(name).ok())
}

/// Returns the text of a config file with the same values.
pub fn file_of_flags(flags: &Flags, plan: &Plan) -> String {
    text::file(flags, plan)
}

fn from_flags_with(flags: &Flags, variable: impl Fn(&str) -> Option<String>) -> Loaded {
    let mut problems = Problems::new(None, "");
    let protocol = read_protocol(flags, &mut problems);
    let servers = read_servers(flags, &protocol, &mut problems);
    let mut service = ServicePlan::with_defaults("main".to_owned(), protocol);
    service.listen = read_listen(flags, &mut problems);
    service.servers = servers;
    service.balance = read_balance(flags, service.balance, &mut problems);
    let admin = read_admin(flags, &mut problems);
    read_account(&mut service, flags, variable, &mut problems);
    read_tls(&mut service, flags, &mut problems);
    let draft = Draft {
        plan: service,
        spans: ServiceSpans::default(),
    };
    if !problems.list.iter().any(|one| one.code == "E_NO_ACCOUNT") {
        check::whole(&admin, &None, std::slice::from_ref(&draft), &mut problems);
    }
    problems.list.iter_mut().for_each(wording::of_plan);
    let plan = (!problems.has_errors()).then(|| Plan {
        path: None,
        engine: Engine::default(),
        admin,
        log: Log::default(),
        peers: PeersPlan::default(),
        acme: None,
        services: vec![draft.plan],
    });
    Loaded { plan, problems }
}

/// Returns the protocol of the first `--listen` that names one. Reports others that differ.
fn read_protocol(flags: &Flags, problems: &mut Problems) -> Protocol {
    let mut protocol = None;
    for text in &flags.listen {
        let Some(named) = scheme("--listen", text, problems) else {
            continue;
        };
        if protocol.get_or_insert_with(|| named.clone()) != &named {
            let message = format!(
                "--listen: `{text}` has a different protocol than the previous \
                 address"
            );
            let help = "use a config file with one service per protocol";
            problems.error(&None, "E_BOTH", message, help);
        }
    }
    protocol.unwrap_or(Protocol::Tcp)
}

/// Returns the protocol of a scheme. `None` without a scheme, or after reporting an unsupported
/// one.
fn scheme(flag: &str, text: &str, problems: &mut Problems) -> Option<Protocol> {
    let (scheme, rest) = text.split_once("://")?;
    let protocol = ProtocolInfo::of_scheme(scheme).map(|info| (info.new)());
    if protocol.is_some() || scheme == "unix" {
        return protocol;
    }
    let message = format!("{flag}: `{scheme}://` is unknown");
    problems.error(&None, "E_ADDRESS", message, format!("use `tcp://{rest}`"));
    None
}

fn read_listen(flags: &Flags, problems: &mut Problems) -> Vec<Listen> {
    let known = flags.listen.iter().filter_map(|text| address_of(text));
    known
        .map(|text| match text.starts_with(':') {
            true => format!("*{text}"),
            false => text.to_owned(),
        })
        .filter_map(|text| parsed("--listen", text.parse(), problems))
        .collect()
}

fn read_servers(flags: &Flags, protocol: &Protocol, problems: &mut Problems) -> Vec<ServerPlan> {
    if flags.to.is_empty() {
        let help = "add `--to 10.0.0.1:3306,10.0.0.2:3306`";
        problems.error(&None, "E_NO_SERVERS", "`--listen` needs servers", help);
    }
    let mut servers = Vec::new();
    for text in &flags.to {
        let named = scheme("--to", text, problems);
        if let Some(named) = named.filter(|named| named != protocol) {
            let message = format!("--to: `{text}` has a different protocol than `--listen`");
            let help = format!("write `--listen {}://…`", ProtocolInfo::of(&named).name);
            problems.error(&None, "E_BOTH", message, help);
            continue;
        }
        let Some(text) = address_of(text) else {
            continue;
        };
        let host = text.rsplit_once('@').map_or(text, |(_, host)| host);
        if has_password(text) {
            let message = "--to: a password on the command line is visible to every user";
            let help = "set PGPASSWORD or MYSQL_PWD, or leave it out to be asked for it";
            problems.error(&None, "E_VALUE", message, help);
            continue;
        }
        if is_location(host) {
            let message = format!("--to: `{host}`: a server's URL has no path and no parameters");
            let scheme = ProtocolInfo::of(protocol).name;
            let help = format!("write `--to {scheme}://HOST:PORT`; `--server-tls` sets TLS");
            problems.error(&None, "E_ADDRESS", message, help);
            continue;
        }
        let port = ProtocolInfo::of(protocol).port;
        let with_port = port.and_then(|port| format!("{host}:{port}").parse().ok());
        let address = host.parse().or_else(|error| with_port.ok_or(error));
        servers.extend(parsed("--to", address, problems).map(ServerPlan::at));
    }
    servers
}

/// Returns the address after a scheme. `None` if the scheme is invalid and has been reported.
fn address_of(text: &str) -> Option<&str> {
    match text.split_once("://") {
        None | Some(("unix", _)) => Some(text),
        Some((scheme, rest)) => ProtocolInfo::of_scheme(scheme).map(|_| rest),
    }
}

/// Returns whether the part of a URL before the host has a password.
fn has_password(text: &str) -> bool {
    text.rsplit_once('@')
        .is_some_and(|(account, _)| account.contains(':'))
}

/// Returns whether a path or parameters follow the host of a URL.
fn is_location(host: &str) -> bool {
    !host.contains("://") && !host.starts_with("unix:") && host.contains(['/', '?'])
}

/// Reads the account of a database service, its password from the environment: every user of the
/// machine could see a password among the flags.
fn read_account(
    service: &mut ServicePlan,
    flags: &Flags,
    variable: impl Fn(&str) -> Option<String>,
    problems: &mut Problems,
) {
    let probe = service.protocol_info().default_probe(true);
    let Some(database) = service.protocol.database_mut() else {
        return;
    };
    let (name, password_variable) = variables(database.protocol);
    let Some((_, user)) = flags.account_with(&variable) else {
        let scheme = database.protocol.name();
        let message =
            format!("`{scheme}://` requires an account to query the servers for roles and users");
        let help = format!(
            "write `--to {scheme}://USER@…`, or set {name}; the password is {password_variable}, or is \
             asked for"
        );
        problems.error(&None, "E_NO_ACCOUNT", message, help);
        return;
    };
    let given = flags.password.clone();
    let password = given.or_else(|| variable(password_variable).map(Secret::new));
    let monitor = Monitor {
        user,
        password: password.unwrap_or_default(),
        source: AccountSource::Flags {
            password: password_variable,
        },
        ..Monitor::default()
    };
    database.auth = auth::from_monitor(Some(&monitor));
    service.health.probe = Some(probe);
    service.monitor = Some(monitor);
}

/// Reads the flags of TLS as a file with the same values would be read.
fn read_tls(service: &mut ServicePlan, flags: &Flags, problems: &mut Problems) {
    let tables = text::tls_tables(flags);
    if tables.is_empty() {
        return;
    }
    let protocol = service.protocol_info().name;
    let file = format!(
        "[[service]]\nname = \"main\"\nprotocol = \"{protocol}\"\nlisten = \"*:1\"\nservers = \
         [\"e:1\"]\n[service.monitor]\nuser = \"e\"\n{tables}"
    );
    let loaded = file::parse(&file, None, &Sources::default());
    let Some(plan) = loaded.plan else {
        for mut problem in loaded.problems.list {
            wording::of_tls(&mut problem, &file);
            problems.error(&None, problem.code, problem.message, problem.help);
        }
        return;
    };
    let Some(read) = plan.services.into_iter().next() else {
        return;
    };
    service.server_tls = read.server_tls;
    let of_clients = read
        .protocol
        .database()
        .and_then(|database| database.tls.clone());
    if let Some(database) = service.protocol.database_mut() {
        database.tls = of_clients;
    }
}

fn parsed<T>(flag: &str, result: Result<T, AddressError>, problems: &mut Problems) -> Option<T> {
    match result {
        Ok(value) => Some(value),
        Err(AddressError { message, help }) => {
            problems.error(&None, "E_ADDRESS", format!("{flag}: {message}"), help);
            None
        }
    }
}

fn read_balance(flags: &Flags, default: Algorithm, problems: &mut Problems) -> Algorithm {
    let Some(text) = &flags.balance else {
        return default;
    };
    let found = Algorithm::ALL.iter().find(|one| one.name() == text);
    found.copied().unwrap_or_else(|| {
        let names: Vec<&str> = Algorithm::ALL.iter().map(|one| one.name()).collect();
        let near = nearest(text, names.iter().copied());
        let near = near.map_or(String::new(), |near| format!("did you mean `{near}`? "));
        let message = format!("--balance: unknown algorithm `{text}`");
        problems.error(
            &None,
            "E_UNKNOWN_WORD",
            message,
            format!("{near}It is one of {}", listed(&names)),
        );
        default
    })
}

fn read_admin(flags: &Flags, problems: &mut Problems) -> Admin {
    let mut admin = Admin::default();
    if let Some(socket) = &flags.socket {
        admin.socket = socket.clone();
    }
    if let Some(text) = &flags.admin {
        match top::parse_listen(text) {
            Ok(listen) => admin.listen = listen,
            Err((message, help)) => {
                problems.error(&None, "E_ADDRESS", format!("--admin: {message}"), help);
            }
        }
    }
    admin
}

#[cfg(test)]
mod tests;
