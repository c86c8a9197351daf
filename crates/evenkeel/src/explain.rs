//! Explains to which server a statement would be routed and why, with the code that routes
//! statements of clients.

mod request;
mod ruled;
mod tls;

use evenkeel_config::plan::{DatabasePlan, Plan, ServicePlan, SqlProtocol};
use evenkeel_policy::pins::{Pin, Pins};
use evenkeel_policy::route::{
    self, Decision, ResolvedHint, RouteTarget, RoutedStatement, RoutingUnit, StatementClass,
    Volatility,
};
use evenkeel_sql::catalog::Catalog;
use evenkeel_sql::mysql::LexerModes;
use evenkeel_sql::routines::Routines;
use evenkeel_sql::session_state::analysis;
use evenkeel_sql::session_state::mysql::{self, SessionObject};

use crate::status::{Explanation, Question, StatementStatus};
use request::explain_request;
use ruled::RuleExplanation;
use tls::explain_server_name;

/// Servers of a service, as far as routing depends on them.
pub(crate) struct ExplainContext<'a> {
    pub(crate) service: &'a ServicePlan,
    /// Settings of the service's protocol.
    pub(crate) database: &'a DatabasePlan,
    /// Index of the primary in the service's list of servers. `None` if there is no primary.
    pub(crate) primary: Option<usize>,
    /// Indexes of the replicas that take reads.
    pub(crate) replicas: Vec<usize>,
    /// Modes with which MySQL servers of the service read statements.
    pub(crate) modes: LexerModes,
}

/// Available information about the functions and tables that a statement names.
pub(crate) enum ObjectInfo<'a> {
    /// Catalog of a PostgreSQL database, with the name of the database.
    Catalog(&'a str, &'a Catalog),
    /// Routines of the MySQL servers.
    Routines(&'a Routines),
    /// No information, for the given reason. Statements of clients are routed accordingly.
    Unavailable(String),
    /// No information, because no process is running.
    Assumed,
}

/// Lookup without a running process: assumes that every function and table only reads.
struct AssumedCatalog;

impl analysis::CatalogLookup for AssumedCatalog {
    fn function(&self, _: &[u8]) -> Volatility {
        Volatility::Stable
    }

    fn relation(&self, _: &[u8]) -> Volatility {
        Volatility::Stable
    }
}

impl mysql::CatalogLookup for AssumedCatalog {
    fn function(&self, _: &[u8]) -> Volatility {
        Volatility::Stable
    }

    fn relation(&self, _: &[u8]) -> Volatility {
        Volatility::Stable
    }

    fn call_pins(&self, _: &[u8]) -> Option<Pins> {
        Some(Pins::NONE)
    }
}

/// Result of the analysis of a statement, in either protocol.
struct ParsedText {
    statements: Vec<RoutedStatement>,
    hint: Option<analysis::RoutingHint>,
    writes: bool,
    pins: Pins,
}

const ASSUMED_SESSION: &str = "a session that is not pinned, has no open transaction and default \
                              settings, and whose writes have reached the replicas";

/// Explains to which server a statement would be routed.
pub(crate) fn explain(
    question: &Question,
    context: &ExplainContext<'_>,
    known: &ObjectInfo<'_>,
) -> Result<Explanation, String> {
    let sql = &question.sql;
    let read = match context.database.protocol {
        SqlProtocol::Mysql => parse_mysql(sql, context.modes, known),
        SqlProtocol::Postgres => parse_postgres(sql, known),
    };
    let hint = read.hint.as_ref().map(|hint| resolve_hint(hint, context));
    let rules = RuleExplanation::new(question, context)?;
    let unit = RoutingUnit {
        statements: &read.statements,
        hint,
        rule: rules.destination(),
    };
    let context = &rules.restrict(context);
    let session = route::SessionContext::default();
    let decision = decide(&unit, &session, context);
    let statements = read.statements.iter().map(status_of);
    let mut explanation = Explanation {
        service: context.service.name.clone(),
        database: match known {
            ObjectInfo::Catalog(name, _) => Some((*name).to_owned()),
            _ => None,
        },
        target: target(decision.target, context),
        servers: servers(decision.target, context),
        why: decision.why.to_owned(),
        obstacles: route::obstacles(&unit, &session)
            .map(str::to_owned)
            .collect(),
        statements: statements.collect(),
        may_write: read.writes || !decision.is_read,
        pins: read
            .pins
            .iter()
            .map(|pin| pin.as_str().to_owned())
            .collect(),
        assumed: assumed(known),
        ..Explanation::default()
    };
    rules.write_to(question, &mut explanation);
    Ok(explanation)
}

fn parse_postgres(sql: &str, known: &ObjectInfo<'_>) -> ParsedText {
    use analysis::EffectKind;
    let lookup: Option<&dyn analysis::CatalogLookup> = match known {
        ObjectInfo::Catalog(_, catalog) => Some(*catalog),
        ObjectInfo::Unavailable(_) | ObjectInfo::Routines(_) => None,
        ObjectInfo::Assumed => Some(&AssumedCatalog),
    };
    let analysis = analysis::read(sql.as_bytes(), false, lookup);
    let mut pins = Pins::NONE;
    for effect in &analysis.effects {
        if let EffectKind::Pin(pin) | EffectKind::PinOnSuccess(pin) = &effect.kind {
            pins.add(*pin);
        }
    }
    if analysis.sequences.draws {
        pins.add(Pin::Sequence);
    }
    ParsedText {
        statements: analysis.statements.to_vec(),
        hint: analysis.hint,
        writes: analysis.writes,
        pins,
    }
}

fn parse_mysql(sql: &str, modes: LexerModes, known: &ObjectInfo<'_>) -> ParsedText {
    use mysql::EffectKind;
    let lookup: Option<&dyn mysql::CatalogLookup> = match known {
        ObjectInfo::Routines(routines) => Some(*routines),
        ObjectInfo::Unavailable(_) | ObjectInfo::Catalog(..) => None,
        ObjectInfo::Assumed => Some(&AssumedCatalog),
    };
    let analysis = mysql::read(sql.as_bytes(), modes, lookup);
    let mut pins = Pins::NONE;
    for effect in &analysis.effects {
        match &effect.kind {
            EffectKind::Pin(pin) | EffectKind::PinOnSuccess(pin) => pins.add(*pin),
            EffectKind::Create(object, _) | EffectKind::CreateUnknown(object) => {
                pins.add(pin_of(*object))
            }
            EffectKind::Prepare(..) => pins.add(Pin::Prepared),
            _ => {}
        }
    }
    ParsedText {
        statements: analysis.statements.to_vec(),
        writes: analysis.writes(),
        hint: analysis.hint,
        pins,
    }
}

fn pin_of(object: SessionObject) -> Pin {
    match object {
        SessionObject::TemporaryTable => Pin::TemporaryTable,
        SessionObject::Prepared => Pin::Prepared,
        SessionObject::Handler => Pin::Handler,
        SessionObject::NamedLock => Pin::NamedLock,
        SessionObject::BackupLock => Pin::BackupLock,
    }
}

/// Returns the explanation of a request or a server name of TLS, or `None` if the text is neither.
pub(crate) fn explain_route<'a>(
    question: &Question,
    services: impl Iterator<Item = &'a ServicePlan> + Clone,
) -> Option<Result<Explanation, String>> {
    explain_server_name(question, services.clone()).or_else(|| explain_request(question, services))
}

/// Explains a statement from the configuration file alone, if no process is running.
pub(crate) fn from_plan(question: &Question, plan: &Plan) -> Result<Explanation, String> {
    if let Some(explained) = explain_route(question, plan.services.iter()) {
        return explained;
    }
    let (service, database) = find_service(plan.services.iter(), question.service.as_deref())?;
    let context = ExplainContext {
        service,
        database,
        primary: Some(0),
        replicas: (1..service.servers.len()).collect(),
        modes: LexerModes::default(),
    };
    let mut explanation = explain(question, &context, &ObjectInfo::Assumed)?;
    // The file does not record which server is the primary.
    explanation.servers.clear();
    Ok(explanation)
}

/// Returns the service named `wanted`, or the only one, among those that use a database protocol.
pub(crate) fn find_service<'a>(
    services: impl Iterator<Item = &'a ServicePlan>,
    wanted: Option<&str>,
) -> Result<(&'a ServicePlan, &'a DatabasePlan), String> {
    let with_database = |service: &'a ServicePlan| Some((service, service.database()?));
    let all: Vec<_> = services.filter_map(with_database).collect();
    let names = || {
        let names: Vec<&str> = all.iter().map(|(service, _)| &*service.name).collect();
        names.join(", ")
    };
    match (wanted, all.as_slice()) {
        (_, []) => Err(
            "no service uses protocol \"postgres\" or \"mysql\"; other statements are not \
             routed"
                .to_owned(),
        ),
        (None, [only]) => Ok(*only),
        (None, _) => Err(format!(
            "several services route statements, choose one with --service: {}",
            names()
        )),
        (Some(wanted), _) => {
            let found = all.iter().find(|(service, _)| service.name == wanted);
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
    context: &ExplainContext<'_>,
) -> Decision {
    let split = &context.database.split;
    let settings = route::SplitSettings {
        reads: split.reads,
        primary_reads: split.primary_reads,
    };
    let availability = route::ServerAvailability {
        primary: context.primary,
        replicas: context.replicas.len(),
        replicas_fresh: context.replicas.len(),
    };
    route::decide(unit, session, &settings, &availability)
}

fn resolve_hint(hint: &analysis::RoutingHint, context: &ExplainContext<'_>) -> ResolvedHint {
    let mut servers = context.service.servers.iter();
    hint.resolve(|name| servers.position(|server| server.name.as_bytes() == name))
}

fn target(target: RouteTarget, context: &ExplainContext<'_>) -> String {
    match target {
        RouteTarget::Primary => "the primary".to_owned(),
        RouteTarget::Readers { and_primary: true } => "a replica or the primary".to_owned(),
        RouteTarget::Readers { and_primary: false } => "a replica".to_owned(),
        RouteTarget::Server(index) => format!("server {}", name(context, index)),
    }
}

fn servers(target: RouteTarget, context: &ExplainContext<'_>) -> Vec<String> {
    let primary = context.primary.into_iter();
    let chosen: Vec<usize> = match target {
        RouteTarget::Primary => primary.collect(),
        RouteTarget::Readers { and_primary } => {
            let primary = primary.filter(|_| and_primary);
            context.replicas.iter().copied().chain(primary).collect()
        }
        RouteTarget::Server(index) => vec![index],
    };
    chosen
        .into_iter()
        .map(|index| name(context, index))
        .collect()
}

fn name(context: &ExplainContext<'_>, index: usize) -> String {
    let server = context.service.servers.get(index);
    server.map_or_else(String::new, |server| server.name.clone())
}

fn assumed(known: &ObjectInfo<'_>) -> Vec<String> {
    let mut assumed = vec![ASSUMED_SESSION.to_owned()];
    match known {
        ObjectInfo::Catalog(..) | ObjectInfo::Routines(_) => {}
        ObjectInfo::Unavailable(why) => assumed.push(format!(
            "nothing about the functions and tables in the statement: {why}"
        )),
        ObjectInfo::Assumed => assumed.extend([
            "the functions and tables that the statement uses change nothing (no Evenkeel process \
             is running to check this)"
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

    fn explained(sql: &str, known: &ObjectInfo<'_>) -> Explanation {
        explained_in("postgres", sql, known)
    }

    fn explained_in(protocol: &str, sql: &str, known: &ObjectInfo<'_>) -> Explanation {
        let file = "[[service]]\nname = \"db\"\nprotocol = \"PROTOCOL\"\nlisten = \"127.0.0.1:1\"\n\
                    servers = [{ name = \"one\", address = \"127.0.0.1:2\" }, \
                    { name = \"two\", address = \"127.0.0.1:3\" }]\n[service.monitor]\n\
                    user = \"m\"\npassword = \"m\"\n[service.split]\nreads = true\n\
                    primary_reads = false\n";
        let file = &file.replace("PROTOCOL", protocol);
        let loaded = evenkeel_config::parse(file, None, &evenkeel_config::Sources::default());
        let plan = loaded
            .plan
            .unwrap_or_else(|| panic!("{:?}", loaded.problems));
        let context = ExplainContext {
            service: &plan.services[0],
            database: plan.services[0].database().expect("a database service"),
            primary: Some(0),
            replicas: vec![1],
            modes: LexerModes::default(),
        };
        let question = Question {
            sql: sql.to_owned(),
            ..Question::default()
        };
        explain(&question, &context, known).expect("an explanation")
    }

    #[test]
    fn a_read_goes_to_the_replicas_and_a_write_says_all_that_keeps_it_from_there() {
        let read = explained("SELECT f(a) FROM t", &ObjectInfo::Assumed);
        assert_eq!(
            (read.target.as_str(), &read.servers[..]),
            ("a replica", &["two".to_owned()][..])
        );
        assert!(read.obstacles.is_empty() && !read.may_write, "{read:?}");
        let write = explained(
            "SELECT nextval('s') FROM t FOR UPDATE",
            &ObjectInfo::Assumed,
        );
        assert_eq!(write.servers, ["one"]);
        assert!(
            write.may_write && write.why.contains("locks rows"),
            "{write:?}"
        );
    }

    #[test]
    fn what_is_not_known_keeps_it_on_the_primary_and_is_said() {
        let why = "its catalog is not read";
        let unknown = explained(
            "SELECT f(a) FROM t",
            &ObjectInfo::Unavailable(why.to_owned()),
        );
        assert_eq!(unknown.target, "the primary");
        assert!(unknown.assumed[1].contains(why), "{unknown:?}");
    }

    #[test]
    fn mysql_s_texts_are_explained_by_mysql_s_rules() {
        let of = |sql: &str| explained_in("mysql", sql, &ObjectInfo::Assumed);
        assert_eq!(of("SELECT `a` FROM t LIMIT 1, 2").target, "a replica");
        assert_eq!(of("SELECT a FROM t LOCK IN SHARE MODE").servers, ["one"]);
        assert_eq!(of("SELECT @n := @n + 1 FROM t").target, "the primary");
        assert_eq!(of("CREATE TEMPORARY TABLE x (a INT)").pins.len(), 1);
        assert!(of("SET @app = 'x', time_zone = '+01:00'").pins.is_empty());
        let why = "nobody has read it";
        let unknown = ObjectInfo::Unavailable(why.to_owned());
        let explanation = explained_in("mysql", "SELECT a FROM t", &unknown);
        assert_eq!(explanation.target, "the primary");
        assert!(explanation.assumed[1].contains(why), "{explanation:?}");
    }

    #[test]
    fn what_binds_a_session_is_said() {
        let listen = explained("LISTEN news", &ObjectInfo::Assumed);
        assert_eq!(listen.pins.len(), 1, "{listen:?}");
        let hint = explained("/* evenkeel: server=two */ SELECT 1", &ObjectInfo::Assumed);
        assert_eq!(hint.target, "server two");
    }
}
