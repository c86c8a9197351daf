//! Explains to which server a statement would be routed and why, with the code that routes
//! statements of clients.

mod ruled;

use evenkeel_policy::pins::{Pin, Pins};
use evenkeel_policy::route::{
    self, Decision, ResolvedHint, RouteTarget, RoutedStatement, RoutingUnit, StatementClass,
    Volatility,
};
use evenkeel_proxy::server_info::{Catalog, Routines};
use evenkeel_proxy::session_state::analysis;
use evenkeel_proxy::session_state::mysql::{self, SessionObject};
use evenkeel_wire::sql::mysql::LexerModes;

use crate::config::plan::{Plan, Protocol, ServicePlan};
use crate::status::{Explanation, Question, StatementStatus};
use ruled::Ruled;

/// Servers of a service, as far as routing depends on them.
pub(crate) struct ExplainContext<'a> {
    pub(crate) service: &'a ServicePlan,
    /// Index of the primary in the service's list of servers. `None` if there is no primary.
    pub(crate) primary: Option<usize>,
    /// Indexes of the replicas that take reads.
    pub(crate) replicas: Vec<usize>,
    /// Modes with which MySQL servers of the service read statements.
    pub(crate) modes: LexerModes,
}

/// Available information about the functions and tables that a statement names.
pub(crate) enum Known<'a> {
    /// Catalog of a PostgreSQL database, with the name of the database.
    Catalog(&'a str, &'a Catalog),
    /// Routines of the MySQL servers.
    Routines(&'a Routines),
    /// No information, for the given reason. Statements of clients are routed accordingly.
    Nothing(String),
    /// No information, because no process is running.
    Nobody,
}

/// Lookup without a running process: assumes that every function and table only reads.
struct Trusting;

impl analysis::CatalogLookup for Trusting {
    fn function(&self, _: &[u8]) -> Volatility {
        Volatility::Stable
    }

    fn relation(&self, _: &[u8]) -> Volatility {
        Volatility::Stable
    }
}

impl mysql::CatalogLookup for Trusting {
    fn function(&self, _: &[u8]) -> Volatility {
        Volatility::Stable
    }

    fn relation(&self, _: &[u8]) -> Volatility {
        Volatility::Stable
    }

    fn binds(&self, _: &[u8]) -> Option<Pins> {
        Some(Pins::NONE)
    }
}

/// Result of the analysis of a statement, in either protocol.
struct Read {
    statements: Vec<RoutedStatement>,
    hint: Option<analysis::RoutingHint>,
    writes: bool,
    binds: Pins,
}

const OF_THE_SESSION: &str = "a session that is not pinned, has no open transaction and default \
                              settings, and whose writes have reached the replicas";

/// Explains to which server a statement would be routed.
pub(crate) fn explain(
    question: &Question,
    cast: &ExplainContext<'_>,
    known: &Known<'_>,
) -> Result<Explanation, String> {
    let sql = &question.sql;
    let read = match cast.service.protocol {
        Protocol::Mysql => of_mysql(sql, cast.modes, known),
        Protocol::Postgres | Protocol::Tcp => of_postgres(sql, known),
    };
    let hint = read.hint.as_ref().map(|hint| hint_of(hint, cast));
    let ruled = Ruled::new(question, cast)?;
    let unit = RoutingUnit {
        statements: &read.statements,
        hint,
        rule: ruled.destination(),
    };
    let cast = &ruled.cast(cast);
    let session = route::SessionContext::default();
    let decision = decide(&unit, &session, cast);
    let statements = read.statements.iter().map(status_of);
    let mut explanation = Explanation {
        service: cast.service.name.clone(),
        database: match known {
            Known::Catalog(name, _) => Some((*name).to_owned()),
            _ => None,
        },
        target: target(decision.target, cast),
        servers: servers(decision.target, cast),
        why: decision.why.to_owned(),
        obstacles: route::obstacles(&unit, &session)
            .map(str::to_owned)
            .collect(),
        statements: statements.collect(),
        may_write: read.writes || !decision.is_read,
        pins: read
            .binds
            .iter()
            .map(|pin| pin.as_str().to_owned())
            .collect(),
        assumed: assumed(known),
        ..Explanation::default()
    };
    ruled.tell(question, &mut explanation);
    Ok(explanation)
}

fn of_postgres(sql: &str, known: &Known<'_>) -> Read {
    use analysis::EffectKind;
    let lookup: Option<&dyn analysis::CatalogLookup> = match known {
        Known::Catalog(_, catalog) => Some(*catalog),
        Known::Nothing(_) | Known::Routines(_) => None,
        Known::Nobody => Some(&Trusting),
    };
    let analysis = analysis::read(sql.as_bytes(), false, lookup);
    let mut binds = Pins::NONE;
    for effect in &analysis.effects {
        if let EffectKind::Pin(pin) | EffectKind::PinOnSuccess(pin) = &effect.kind {
            binds.add(*pin);
        }
    }
    if analysis.uses_nextval {
        binds.add(Pin::Sequence);
    }
    Read {
        statements: analysis.statements.to_vec(),
        hint: analysis.hint,
        writes: analysis.writes,
        binds,
    }
}

fn of_mysql(sql: &str, modes: LexerModes, known: &Known<'_>) -> Read {
    use mysql::EffectKind;
    let lookup: Option<&dyn mysql::CatalogLookup> = match known {
        Known::Routines(routines) => Some(*routines),
        Known::Nothing(_) | Known::Catalog(..) => None,
        Known::Nobody => Some(&Trusting),
    };
    let analysis = mysql::read(sql.as_bytes(), modes, lookup);
    let mut binds = Pins::NONE;
    for effect in &analysis.effects {
        match &effect.does {
            EffectKind::Pin(pin) | EffectKind::PinOnSuccess(pin) => binds.add(*pin),
            EffectKind::Make(thing, _) | EffectKind::Unknown(thing) => binds.add(pin_of(*thing)),
            EffectKind::Prepare(..) => binds.add(Pin::Prepared),
            _ => {}
        }
    }
    Read {
        statements: analysis.statements.to_vec(),
        hint: analysis.hint,
        writes: analysis.writes,
        binds,
    }
}

fn pin_of(thing: SessionObject) -> Pin {
    match thing {
        SessionObject::TemporaryTable => Pin::TemporaryTable,
        SessionObject::Prepared => Pin::Prepared,
        SessionObject::Handler => Pin::Handler,
        SessionObject::NamedLock => Pin::NamedLock,
        SessionObject::BackupLock => Pin::BackupLock,
    }
}

/// Explains a statement from the configuration file alone, if no process is running.
pub(crate) fn from_plan(question: &Question, plan: &Plan) -> Result<Explanation, String> {
    let service = the_service(plan.services.iter(), question.service.as_deref())?;
    let cast = ExplainContext {
        service,
        primary: Some(0),
        replicas: (1..service.servers.len()).collect(),
        modes: LexerModes::default(),
    };
    let mut explanation = explain(question, &cast, &Known::Nobody)?;
    // The file does not record which server is the primary.
    explanation.servers.clear();
    Ok(explanation)
}

/// Returns the service named `wanted`, or the only one, among those that use a database protocol.
pub(crate) fn the_service<'a>(
    services: impl Iterator<Item = &'a ServicePlan>,
    wanted: Option<&str>,
) -> Result<&'a ServicePlan, String> {
    let speaks = |service: &&ServicePlan| service.protocol.is_database();
    let all: Vec<&ServicePlan> = services.filter(speaks).collect();
    let names = || {
        let names: Vec<&str> = all.iter().map(|service| service.name.as_str()).collect();
        names.join(", ")
    };
    match (wanted, all.as_slice()) {
        (_, []) => Err(
            "no service uses protocol \"postgres\" or \"mysql\"; other statements are not \
             routed"
                .to_owned(),
        ),
        (None, [only]) => Ok(only),
        (None, _) => Err(format!(
            "several services route statements, choose one with --service: {}",
            names()
        )),
        (Some(wanted), _) => {
            let found = all.iter().find(|service| service.name == wanted);
            found.copied().ok_or_else(|| {
                format!(
                    "service {wanted:?} does not route statements or does not exist; choose one \
                     of: {}",
                    names()
                )
            })
        }
    }
}

fn decide(
    unit: &RoutingUnit<'_>,
    session: &route::SessionContext,
    cast: &ExplainContext<'_>,
) -> Decision {
    let split = cast.service.database.as_deref().map(|plan| &plan.split);
    let settings = route::SplitSettings {
        reads: split.is_some_and(|split| split.reads),
        primary_reads: split.is_some_and(|split| split.primary_reads),
    };
    let view = route::ServerAvailability {
        primary: cast.primary,
        replicas: cast.replicas.len(),
        replicas_fresh: cast.replicas.len(),
    };
    route::decide(unit, session, &settings, &view)
}

fn hint_of(hint: &analysis::RoutingHint, cast: &ExplainContext<'_>) -> ResolvedHint {
    let mut servers = cast.service.servers.iter();
    hint.routed(|name| servers.position(|server| server.name.as_bytes() == name))
}

fn target(target: RouteTarget, cast: &ExplainContext<'_>) -> String {
    match target {
        RouteTarget::Primary => "the primary".to_owned(),
        RouteTarget::Readers { and_primary: true } => "a replica or the primary".to_owned(),
        RouteTarget::Readers { and_primary: false } => "a replica".to_owned(),
        RouteTarget::Server(index) => format!("server {}", name(cast, index)),
    }
}

fn servers(target: RouteTarget, cast: &ExplainContext<'_>) -> Vec<String> {
    let primary = cast.primary.into_iter();
    let chosen: Vec<usize> = match target {
        RouteTarget::Primary => primary.collect(),
        RouteTarget::Readers { and_primary } => {
            let primary = primary.filter(|_| and_primary);
            cast.replicas.iter().copied().chain(primary).collect()
        }
        RouteTarget::Server(index) => vec![index],
    };
    chosen.into_iter().map(|index| name(cast, index)).collect()
}

fn name(cast: &ExplainContext<'_>, index: usize) -> String {
    let server = cast.service.servers.get(index);
    server.map_or_else(String::new, |server| server.name.clone())
}

fn assumed(known: &Known<'_>) -> Vec<String> {
    let mut assumed = vec![OF_THE_SESSION.to_owned()];
    match known {
        Known::Catalog(..) | Known::Routines(_) => {}
        Known::Nothing(why) => assumed.push(format!(
            "nothing about the functions and tables in the statement: {why}"
        )),
        Known::Nobody => assumed.extend([
            "functions and tables in the statement only read (no running process to ask)"
                .to_owned(),
            "there is a primary, and all other servers are replicas that serve reads".to_owned(),
            "version-dependent comments (/*! … */) are treated as comments".to_owned(),
        ]),
    }
    assumed
}

fn status_of(statement: &RoutedStatement) -> StatementStatus {
    let kind = match statement.kind {
        StatementClass::Empty => "empty",
        StatementClass::Read => "read",
        StatementClass::Write => "write",
        StatementClass::Ddl => "ddl",
        StatementClass::Begin(_) => "begin",
        StatementClass::EndTransaction => "transaction control",
        StatementClass::Setting => "setting",
        StatementClass::Session => "session state",
        StatementClass::Lock => "lock",
        StatementClass::Asks => "server info",
        StatementClass::Server => "server command",
        StatementClass::Routine => "routine",
        StatementClass::Unknown => "unknown",
    };
    let calls = match statement.calls {
        Volatility::None => "none",
        Volatility::Immutable => "immutable",
        Volatility::Stable => "stable",
        Volatility::Volatile => "volatile",
        Volatility::Unknown => "unknown",
    };
    StatementStatus {
        kind: kind.to_owned(),
        calls: calls.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn explained(sql: &str, known: &Known<'_>) -> Explanation {
        explained_in("postgres", sql, known)
    }

    fn explained_in(protocol: &str, sql: &str, known: &Known<'_>) -> Explanation {
        let file = "[[service]]\nname = \"db\"\nprotocol = \"PROTOCOL\"\nlisten = \"127.0.0.1:1\"\n\
                    servers = [{ name = \"one\", address = \"127.0.0.1:2\" }, \
                    { name = \"two\", address = \"127.0.0.1:3\" }]\n[service.monitor]\n\
                    user = \"m\"\npassword = \"m\"\n[service.split]\nreads = true\n\
                    primary_reads = false\n";
        let file = &file.replace("PROTOCOL", protocol);
        let loaded = crate::config::parse(file, None, &crate::config::Sources::default());
        let plan = loaded
            .plan
            .unwrap_or_else(|| panic!("{:?}", loaded.problems));
        let cast = ExplainContext {
            service: &plan.services[0],
            primary: Some(0),
            replicas: vec![1],
            modes: LexerModes::default(),
        };
        let question = Question {
            sql: sql.to_owned(),
            ..Question::default()
        };
        explain(&question, &cast, known).expect("an explanation")
    }

    #[test]
    fn a_read_goes_to_the_replicas_and_a_write_says_all_that_keeps_it_from_there() {
        let read = explained("SELECT f(a) FROM t", &Known::Nobody);
        assert_eq!(
            (read.target.as_str(), &read.servers[..]),
            ("a replica", &["two".to_owned()][..])
        );
        assert!(read.obstacles.is_empty() && !read.may_write, "{read:?}");
        let write = explained("SELECT nextval('s') FROM t FOR UPDATE", &Known::Nobody);
        assert_eq!(write.servers, ["one"]);
        assert!(
            write.may_write && write.why.contains("locks rows"),
            "{write:?}"
        );
    }

    #[test]
    fn what_is_not_known_keeps_it_on_the_primary_and_is_said() {
        let why = "its catalog is not read";
        let unknown = explained("SELECT f(a) FROM t", &Known::Nothing(why.to_owned()));
        assert_eq!(unknown.target, "the primary");
        assert!(unknown.assumed[1].contains(why), "{unknown:?}");
    }

    #[test]
    fn mysql_s_texts_are_explained_by_mysql_s_rules() {
        let of = |sql: &str| explained_in("mysql", sql, &Known::Nobody);
        assert_eq!(of("SELECT `a` FROM t LIMIT 1, 2").target, "a replica");
        assert_eq!(of("SELECT a FROM t LOCK IN SHARE MODE").servers, ["one"]);
        assert_eq!(of("SELECT @n := @n + 1 FROM t").target, "the primary");
        assert_eq!(of("CREATE TEMPORARY TABLE x (a INT)").pins.len(), 1);
        assert!(of("SET @app = 'x', time_zone = '+01:00'").pins.is_empty());
        let why = "nobody has read it";
        let unknown = Known::Nothing(why.to_owned());
        let told = explained_in("mysql", "SELECT a FROM t", &unknown);
        assert_eq!(told.target, "the primary");
        assert!(told.assumed[1].contains(why), "{told:?}");
    }

    #[test]
    fn what_binds_a_session_is_said() {
        let listen = explained("LISTEN news", &Known::Nobody);
        assert_eq!(listen.pins.len(), 1, "{listen:?}");
        let hint = explained("/* evenkeel: server=two */ SELECT 1", &Known::Nobody);
        assert_eq!(hint.target, "server two");
    }
}
