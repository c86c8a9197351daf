//! Decides where a statement runs: on the primary unless it is known to be a read.
//!
//! [`decide`] is called once for each text that a client sends as a unit. That is a simple query
//! with all of its statements, or the messages of an extended batch up to its Sync. The result is
//! the kind of server, with a reason that `explain` prints. The balancing algorithm then chooses
//! among the readers that the session's causality admits.
//!
//! [`retry::after_failure`] decides after a server refused or failed a statement.

pub mod facts;
pub mod retry;

#[cfg(test)]
mod tests;

use crate::rules::{Destination, ServerGroup};
pub use facts::{
    Isolation, ResolvedHint, RoutedStatement, RoutingTraits, RoutingUnit, StatementClass,
    TransactionModes, Volatility,
};

/// Part of the configuration that a decision depends on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SplitSettings {
    /// `split.reads`: true if reads may run on other servers than the primary.
    pub reads: bool,
    /// `split.primary_reads`: true if the primary takes a share of the reads, by its weight.
    pub primary_reads: bool,
}

/// State of the session that a decision depends on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SessionContext {
    /// MySQL's autocommit; always true for PostgreSQL.
    pub autocommit: bool,
    /// Modes of a transaction that does not specify them, including SET TRANSACTION for the next
    /// one. Sources: `default_transaction_read_only` and isolation, or MySQL's
    /// `transaction_read_only`.
    pub defaults: TransactionModes,
    /// True if the session changed the catalog (DDL), whose view of it may be newer than a
    /// replica's, or if any session changed functions that were not read again.
    pub changed_catalog: bool,
}

impl Default for SessionContext {
    fn default() -> SessionContext {
        SessionContext {
            autocommit: true,
            defaults: TransactionModes::default(),
            changed_catalog: false,
        }
    }
}

/// Servers that this session may use now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ServerAvailability {
    /// Index of the primary in the service's list.
    pub primary: Option<usize>,
    /// Number of replicas that take clients and whose lag is within the limit.
    pub replicas: usize,
    /// Number of these replicas that have all data this session must see, or will have it within
    /// the wait.
    pub replicas_fresh: usize,
}

/// Result of a decision.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Decision {
    /// Target of the unit.
    pub target: RouteTarget,
    /// Reason, for `explain` and the log.
    pub why: &'static str,
    /// True if the unit is known to only read or query state. It may then be sent again to another
    /// server while no byte of its reply has reached the client.
    pub is_read: bool,
}

/// Kind of server that a unit is sent to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RouteTarget {
    /// The primary. If there is none, `failover_queue` decides what happens.
    Primary,
    /// A fresh replica, or the primary if it takes part: the balancing algorithm chooses.
    Readers {
        /// True if the primary is one of the candidates.
        and_primary: bool,
    },
    /// The server that a hint names, by its index in the list.
    Server(usize),
}

/// Decides where a unit runs.
#[must_use]
pub fn decide(
    unit: &RoutingUnit<'_>,
    session: &SessionContext,
    settings: &SplitSettings,
    servers: &ServerAvailability,
) -> Decision {
    let obstacle = obstacle(unit, session);
    let decision = (!settings.reads)
        .then(|| primary("read/write splitting is off ([service.split] reads)"))
        .or_else(|| decide_by_hint(unit, obstacle))
        .or_else(|| decide_by_rule(unit, session, servers))
        .or_else(|| obstacle.map(|obstacle| primary(obstacle.why)))
        .unwrap_or_else(|| decide_read(unit, settings, servers));
    Decision {
        is_read: obstacle.is_none() || only_asks(unit, session),
        ..decision
    }
}

/// Returns whether a session that is pinned to a replica must not run this unit there. That applies
/// to units that may write, lock, or begin a transaction that is SERIALIZABLE or not READ ONLY.
#[must_use]
pub fn is_beyond_replica(unit: &RoutingUnit<'_>, session: &SessionContext) -> bool {
    const WRITING: RoutingTraits = RoutingTraits::WRITES
        .and(RoutingTraits::LOCKS_ROWS)
        .and(RoutingTraits::MAKES_TABLE)
        .and(RoutingTraits::SEQUENCE);
    // The session itself requested READ ONLY, so the primary would refuse a write, too.
    let only_reads = session.defaults.read_only == Some(true);
    unit.statements.iter().any(|one| match one.kind {
        StatementClass::Begin(modes) => of_modes(modes, session).is_some(),
        StatementClass::Write
        | StatementClass::Ddl
        | StatementClass::Lock
        | StatementClass::Routine => !only_reads,
        StatementClass::Read => !only_reads && one.traits.any(WRITING),
        _ => false,
    })
}

/// Applies a hint, which chooses among the servers that could run the unit. A certain write goes to
/// the primary: a replica would refuse it, or worse, accept it.
fn decide_by_hint(unit: &RoutingUnit<'_>, obstacle: Option<Obstacle>) -> Option<Decision> {
    let writes = obstacle.is_some_and(|obstacle| obstacle.certainty == Certainty::None);
    Some(match unit.hint? {
        ResolvedHint::Primary => primary("hint: primary"),
        ResolvedHint::Replica | ResolvedHint::Server(Some(_)) if writes => {
            primary("hint ignored: the statement writes")
        }
        ResolvedHint::Replica => {
            decision(RouteTarget::Readers { and_primary: false }, "hint: replica")
        }
        ResolvedHint::Server(Some(index)) => decision(RouteTarget::Server(index), "hint: server"),
        ResolvedHint::Server(None) => {
            primary("hint ignored: the service has no server of that name")
        }
    })
}

/// Applies a rule of the operator, which ranks after hints in the text. Rules apply to reads only:
/// to known reads, and to those that the rule declares as reads.
fn decide_by_rule(
    unit: &RoutingUnit<'_>,
    session: &SessionContext,
    servers: &ServerAvailability,
) -> Option<Decision> {
    let Destination { group, assume_read } = unit.rule?;
    if *group == ServerGroup::Primary {
        return Some(primary("rule: primary"));
    }
    let is_trusted = |one: Obstacle| *assume_read && one.certainty == Certainty::Called;
    if !all_obstacles(unit, session).all(is_trusted) {
        return None;
    }
    let primary_reads = match group {
        ServerGroup::Primary | ServerGroup::Any => true,
        ServerGroup::Replicas => false,
        ServerGroup::Servers(_) => servers.primary.is_some_and(|primary| group.has(primary)),
    };
    let settings = SplitSettings {
        reads: true,
        primary_reads,
    };
    Some(decide_read(unit, &settings, servers))
}

fn decide_read(
    unit: &RoutingUnit<'_>,
    settings: &SplitSettings,
    servers: &ServerAvailability,
) -> Decision {
    if servers.replicas == 0 {
        return primary("read-only, but no replica is available");
    }
    if servers.replicas_fresh == 0 && !unit.needs_no_data() {
        return primary("read-only, but no replica has caught up with this session's writes");
    }
    let and_primary = settings.primary_reads;
    let why = match and_primary {
        true => "read-only, balanced over the replicas and the primary",
        false => "read-only",
    };
    decision(RouteTarget::Readers { and_primary }, why)
}

fn only_asks(unit: &RoutingUnit<'_>, session: &SessionContext) -> bool {
    all_obstacles(unit, session).all(|one| one.certainty == Certainty::Asks)
}

/// Reason for which a unit cannot run on a replica.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Obstacle {
    why: &'static str,
    certainty: Certainty,
}

/// Certainty of an obstacle, the most serious first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Certainty {
    /// The statement certainly writes or locks.
    None,
    /// A write cannot be excluded.
    Some,
    /// The effect depends on the called functions, which an operator may know.
    Called,
    /// The statement only queries state, which differs between servers.
    Asks,
}

const fn certain(why: &'static str) -> Option<Obstacle> {
    let certainty = Certainty::None;
    Some(Obstacle { why, certainty })
}

const fn possible(why: &'static str) -> Option<Obstacle> {
    let certainty = Certainty::Some;
    Some(Obstacle { why, certainty })
}

const fn called(why: &'static str) -> Option<Obstacle> {
    let certainty = Certainty::Called;
    Some(Obstacle { why, certainty })
}

const fn asks(why: &'static str) -> Option<Obstacle> {
    let certainty = Certainty::Asks;
    Some(Obstacle { why, certainty })
}

/// Returns all obstacles that keep a unit from a replica, statement by statement; for `explain`.
pub fn obstacles<'a>(
    unit: &'a RoutingUnit<'a>,
    session: &'a SessionContext,
) -> impl Iterator<Item = &'static str> + 'a {
    all_obstacles(unit, session).map(|obstacle| obstacle.why)
}

/// Returns the obstacle that keeps a unit from a replica; certain obstacles before possible ones.
fn obstacle(unit: &RoutingUnit<'_>, session: &SessionContext) -> Option<Obstacle> {
    all_obstacles(unit, session).min_by_key(|obstacle| obstacle.certainty != Certainty::None)
}

fn all_obstacles<'a>(
    unit: &'a RoutingUnit<'a>,
    session: &'a SessionContext,
) -> impl Iterator<Item = Obstacle> + 'a {
    let own = unit
        .statements
        .iter()
        .flat_map(|one| of_statement(one, session));
    own.chain([of_session(unit, session)]).flatten()
}

fn of_session(unit: &RoutingUnit<'_>, session: &SessionContext) -> Option<Obstacle> {
    if !session.autocommit && session.defaults.read_only != Some(true) {
        return possible("autocommit is off: starts a transaction that may write");
    }
    let is_serializable = session.defaults.isolation == Some(Isolation::Serializable);
    if is_serializable && !unit.begins() {
        return possible("SERIALIZABLE isolation, not available on replicas");
    }
    None
}

fn of_modes(modes: TransactionModes, session: &SessionContext) -> Option<Obstacle> {
    let modes = modes.or(session.defaults);
    if modes.read_only != Some(true) {
        return possible("transaction is not READ ONLY");
    }
    if modes.isolation == Some(Isolation::Serializable) {
        return possible("SERIALIZABLE isolation, not available on replicas");
    }
    None
}

fn of_statement(statement: &RoutedStatement, session: &SessionContext) -> [Option<Obstacle>; 3] {
    [
        of_kind(statement.kind, session),
        of_traits(statement.traits),
        of_calls(statement, session),
    ]
}

fn of_kind(kind: StatementClass, session: &SessionContext) -> Option<Obstacle> {
    match kind {
        StatementClass::Empty
        | StatementClass::Read
        | StatementClass::Setting
        | StatementClass::EndTransaction => None,
        StatementClass::Begin(modes) => of_modes(modes, session),
        StatementClass::Write => certain("writes data"),
        StatementClass::Ddl => certain("changes the schema (DDL)"),
        StatementClass::Lock => certain("locks tables"),
        StatementClass::Asks => asks("reads server variables or status (SHOW, @@variables)"),
        StatementClass::Server => {
            possible("acts on the server, not on its data (SET GLOBAL, KILL, NOTIFY)")
        }
        StatementClass::Routine => called("calls a procedure or runs a code block (CALL, DO)"),
        StatementClass::Session => possible("changes state of the server connection"),
        StatementClass::Unknown => possible("unknown kind of statement"),
    }
}

/// Obstacles by trait. The first that applies is the one that is reported.
const TRAITS: &[(RoutingTraits, Option<Obstacle>)] = &[
    (RoutingTraits::WRITES, certain("query that writes")),
    (
        RoutingTraits::LOCKS_ROWS,
        certain("locks rows (FOR UPDATE, FOR SHARE)"),
    ),
    (
        RoutingTraits::MAKES_TABLE,
        certain("stores its result (INTO)"),
    ),
    (
        RoutingTraits::SEQUENCE,
        certain("uses a sequence (nextval, setval)"),
    ),
    (RoutingTraits::TEMPORARY, certain("uses temporary tables")),
    (
        RoutingTraits::NAMED_LOCK,
        certain("takes or releases an advisory or named lock"),
    ),
    (RoutingTraits::LARGE_OBJECT, possible("uses large objects")),
    (RoutingTraits::NOTIFIES, certain("sends a notification")),
    (
        RoutingTraits::TRANSACTION_ID,
        certain("assigns a transaction id"),
    ),
    (
        RoutingTraits::ASSIGNS,
        possible("sets settings or variables"),
    ),
    (
        RoutingTraits::REMEMBERS,
        possible("reads connection state (LAST_INSERT_ID, currval)"),
    ),
    (RoutingTraits::RUNS_TEXT, possible("runs dynamic SQL")),
    (
        RoutingTraits::OBSCURE,
        possible("cannot be parsed reliably"),
    ),
];

fn of_traits(traits: RoutingTraits) -> Option<Obstacle> {
    let found = TRAITS.iter().find(|(which, _)| traits.any(*which));
    found.and_then(|(_, obstacle)| *obstacle)
}

fn of_calls(statement: &RoutedStatement, session: &SessionContext) -> Option<Obstacle> {
    match statement.calls {
        Volatility::Unknown => called("uses an unknown function or view"),
        Volatility::Volatile => called("calls a volatile function"),
        // The known properties of functions and views may be older than the schema change.
        Volatility::Stable if session.changed_catalog => {
            called("calls a function after a change of the schema")
        }
        _ if session.changed_catalog && statement.traits.any(RoutingTraits::CATALOG) => {
            possible("reads the system catalog after a change of the schema")
        }
        Volatility::None | Volatility::Immutable | Volatility::Stable => None,
    }
}

fn primary(why: &'static str) -> Decision {
    decision(RouteTarget::Primary, why)
}

fn decision(target: RouteTarget, why: &'static str) -> Decision {
    Decision {
        target,
        why,
        is_read: false,
    }
}
