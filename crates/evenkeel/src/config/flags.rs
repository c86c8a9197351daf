//! A plan without a file: one service from the flags of `evenkeel run --listen … --to …`.

use std::path::PathBuf;

use evenkeel_policy::balance::Algorithm;

use super::file::Loaded;
use super::keys;
use super::plan::{
    Address, Admin, Engine, Listen, Log, PeersPlan, Plan, Protocol, ServerPlan, ServicePlan,
};
use super::problem::Problems;
use super::reader::listed;
use super::service::{Draft, ServicePlaces};
use super::{AddressError, check, top};

/// The flags as they were typed.
#[derive(Clone, Debug, Default)]
pub struct Flags {
    /// `tcp://address:port`; the scheme may be left out.
    pub listen: Vec<String>,
    /// Servers.
    pub to: Vec<String>,
    /// An algorithm's name.
    pub balance: Option<String>,
    /// An address, or `off`.
    pub admin: Option<String>,
    /// The control socket.
    pub socket: Option<PathBuf>,
}

/// The same plan that a file with these values gives.
pub fn from_flags(flags: &Flags) -> Loaded {
    let mut problems = Problems::new(None, "");
    let mut service = ServicePlan::with_defaults("main".to_owned(), Protocol::Tcp);
    service.listen = read_listen(flags, &mut problems);
    service.servers = read_servers(flags, &mut problems);
    service.balance = read_balance(flags, &mut problems);
    let admin = read_admin(flags, &mut problems);
    let draft = Draft {
        plan: service,
        places: ServicePlaces::default(),
    };
    check::whole(&admin, &None, std::slice::from_ref(&draft), &mut problems);
    let plan = (!problems.has_errors()).then(|| Plan {
        path: None,
        engine: Engine::default(),
        admin,
        log: Log::default(),
        peers: PeersPlan::default(),
        services: vec![draft.plan],
    });
    Loaded { plan, problems }
}

fn read_listen(flags: &Flags, problems: &mut Problems) -> Vec<Listen> {
    let texts = flags
        .listen
        .iter()
        .filter_map(|text| without_scheme("--listen", text, problems));
    let texts: Vec<&str> = texts.collect();
    texts
        .into_iter()
        .filter_map(|text| parsed("--listen", text.parse(), problems))
        .collect()
}

fn read_servers(flags: &Flags, problems: &mut Problems) -> Vec<ServerPlan> {
    let texts = flags
        .to
        .iter()
        .filter_map(|text| without_scheme("--to", text, problems));
    let texts: Vec<&str> = texts.collect();
    if flags.to.is_empty() {
        let help = "add `--to 10.0.0.1:3306,10.0.0.2:3306`";
        problems.error(&None, "E_NO_SERVERS", "`--listen` needs servers", help);
    }
    let addresses = texts
        .into_iter()
        .filter_map(|text| parsed("--to", text.parse::<Address>(), problems));
    addresses.map(ServerPlan::at).collect()
}

/// The scheme says the protocol.
fn without_scheme<'a>(flag: &str, text: &'a str, problems: &mut Problems) -> Option<&'a str> {
    match text.split_once("://") {
        None | Some(("unix", _)) => Some(text),
        Some(("tcp", rest)) => Some(rest),
        Some((scheme, rest)) if keys::PROTOCOLS_NOT_YET.contains(&scheme) => {
            let message = format!("{flag}: `{scheme}://` is not supported yet");
            problems.error(&None, "E_NOT_YET", message, format!("use `tcp://{rest}`"));
            None
        }
        Some((scheme, rest)) => {
            let message = format!("{flag}: `{scheme}://` is unknown");
            problems.error(&None, "E_ADDRESS", message, format!("use `tcp://{rest}`"));
            None
        }
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

fn read_balance(flags: &Flags, problems: &mut Problems) -> Algorithm {
    let Some(text) = &flags.balance else {
        return Algorithm::RoundRobin;
    };
    let found = Algorithm::ALL.iter().find(|one| one.name() == text);
    found.copied().unwrap_or_else(|| {
        let names: Vec<&str> = Algorithm::ALL.iter().map(|one| one.name()).collect();
        let near = keys::nearest(text, names.iter().copied());
        let near = near.map_or(String::new(), |near| format!("did you mean `{near}`? "));
        let message = format!("--balance: there is no `{text}`");
        problems.error(
            &None,
            "E_UNKNOWN_WORD",
            message,
            format!("{near}It is one of {}", listed(&names)),
        );
        Algorithm::RoundRobin
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
