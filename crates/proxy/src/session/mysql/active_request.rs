//! The command that is under way, and where it is to run.

use std::sync::Arc;

use evenkeel_policy::connection_pool::Condition;
use evenkeel_policy::pins::{Pin, Pins};
use evenkeel_policy::route::{
    self, Decision, RoutedStatement, RoutingTraits, StatementClass, Volatility,
};
use evenkeel_wire::mysql::flags::Status;
use smallvec::SmallVec;

use super::Session;
use super::error_reply::ErrorReply;
use super::statements;
use crate::clock;
use crate::service::ServiceSnapshot;
use crate::service::database::DatabaseSnapshot;
use crate::service::rules::Ruling;
use crate::session::placement::{CatchUpTarget, PlacementTarget, ReadRequest};
use crate::session_state::mysql::TextAnalysis;

/// So long a session reads at the primary that no replica could be made fit for.
const UNFIT_MS: u64 = 1_000;

/// One command of a client, and how it fares.
#[derive(Default)]
pub(super) struct ActiveRequest {
    /// Its bytes, as far as they are kept.
    pub(super) command: Vec<u8>,
    /// All of it is there, and can be sent again.
    pub(super) is_kept: bool,
    /// What bound the session before it.
    pub(super) bonds_before: Pins,
    /// What the session has set and the connection that it has got has not.
    pub(super) missing: Option<Missing>,
    pub(super) what: CommandKind,
    pub(super) sense: CommandStatement,
    pub(super) is_read: bool,
    pub(super) may_write: bool,
    /// If it was turned away, nothing of it was run.
    pub(super) is_atomic: bool,
    pub(super) reached_server: bool,
    pub(super) reached_client: bool,
    /// The server has answered by an error.
    pub(super) has_failed: bool,
    /// Rows that it has changed.
    pub(super) rows_affected: u64,
    /// Results that have come, so that each is told to its statement.
    pub(super) results: usize,
    /// What a replica must have before it reads; what it says of that.
    pub(super) wait: Option<CatchUpTarget>,
    /// Until then it may take, where no server sets a limit.
    pub(super) patience: Option<std::pin::Pin<Box<dyn Future<Output = ()>>>>,
    pub(super) word: Vec<u8>,
    /// Servers that failed it.
    pub(super) tried: SmallVec<[u64; 2]>,
    /// How often it was run again.
    pub(super) retries: u32,
    /// It must not go to a replica (again).
    pub(super) primary_only: bool,
    /// No replica has in time what it must see, or one could not be made fit for it: it reads, but
    /// at the primary.
    pub(super) is_late: bool,
    pub(super) since_us: u64,
}

/// What is to be set on a connection.
#[derive(Debug, Default)]
pub(super) struct Missing {
    pub(super) schema: Option<Box<[u8]>>,
    /// One SET; empty: none.
    pub(super) sql: Vec<u8>,
    /// Replies to it that have not come.
    pub(super) owed: u8,
}

/// What a command wants. Numbers of statements are the client's.
#[derive(Debug, Clone, Default)]
pub(super) enum CommandKind {
    /// COM_QUERY, COM_PROCESS_INFO.
    #[default]
    Query,
    Prepare(Arc<statements::Statement>),
    Execute(u32),
    /// COM_STMT_BULK_EXECUTE.
    Bulk(u32),
    Fetch(u32),
    LongData(u32),
    ResetStatement(u32),
    FieldList,
    Statistics,
    InitDb,
    Ping,
    /// COM_REGISTER_SLAVE.
    Replica,
    Binlog,
    /// Whatever else OK, EOF or ERR answers.
    Simple,
}

impl CommandKind {
    /// Whether a statement is run.
    pub(super) fn is_run(&self) -> bool {
        matches!(
            self,
            CommandKind::Query | CommandKind::Execute(_) | CommandKind::Bulk(_)
        )
    }

    /// Whose statement it is about.
    pub(super) fn number(&self) -> Option<u32> {
        match self {
            CommandKind::Execute(number)
            | CommandKind::Bulk(number)
            | CommandKind::Fetch(number)
            | CommandKind::LongData(number)
            | CommandKind::ResetStatement(number) => Some(*number),
            _ => None,
        }
    }
}

/// What a command means.
#[derive(Default)]
pub(super) enum CommandStatement {
    /// Nothing that is a text.
    #[default]
    Nothing,
    /// Its text was read.
    Text(Arc<TextAnalysis>),
    /// It executes what was prepared.
    Statement(Arc<statements::Statement>),
}

impl CommandStatement {
    pub(super) fn meaning(&self) -> Option<&TextAnalysis> {
        match self {
            CommandStatement::Nothing => None,
            CommandStatement::Text(meaning) => Some(meaning),
            CommandStatement::Statement(statement) => Some(&statement.meaning),
        }
    }
}

impl Session<'_> {
    /// Where the command ahead is to run, for a session that has no server connection.
    pub(super) fn decide(&mut self, view: &ServiceSnapshot) -> PlacementTarget {
        self.unit.is_read = false;
        let Some(own) = view.database.as_ref().filter(|own| own.splits_reads()) else {
            return PlacementTarget::Primary;
        };
        // Of what a replica could not run, or found to write, it is not known that it only reads.
        if self.unit.primary_only || !self.takes_part_in_split() {
            return PlacementTarget::Primary;
        }
        if self.is_better_at_primary(view, own) {
            // What a setting did has ended with the connection on which it was made.
            self.unit.is_read =
                self.may_be_set_again() || matches!(self.unit.what, CommandKind::InitDb);
            return PlacementTarget::Primary;
        }
        let reading = ReadRequest {
            knowledge: &self.service.knowledge,
            token: &mut self.token,
            tried: &self.unit.tried,
            among: self.ruling.as_ref().and_then(Ruling::among),
            may_wait: self.unit.is_kept,
        };
        let found = reading.look(view, own);
        let decision = self.decision(own, found.seen());
        found.want_positions(&decision, &self.service.knowledge);
        self.unit.is_read = decision.is_read;
        if self.unit.is_late || self.was_just_unfit() {
            return PlacementTarget::Primary;
        }
        let key = self.account.who.user_number.get();
        let has_room = |index| self.borrower.has_room(view, index);
        found.place(decision.target, own, key, has_room)
    }

    /// A replica has refused its schema or settings: another try would cost a connection for each
    /// read.
    fn was_just_unfit(&mut self) -> bool {
        let is_recent = |since_ms: &u64| clock::now_ms().saturating_sub(*since_ms) < UNFIT_MS;
        self.unfit_since_ms = self.unfit_since_ms.filter(is_recent);
        self.unfit_since_ms.is_some()
    }

    /// A session that is at a replica for a question or a READ ONLY transaction, and wants to do
    /// what is not for a replica: even where that would let it.
    pub(super) fn leave_replica(&mut self) -> Result<(), ErrorReply> {
        let Some(meaning) = self.unit.sense.meaning() else {
            return Ok(());
        };
        if !self.borrower.is_at_replica() || self.keeps_connection() || self.only_reads() {
            return Ok(());
        }
        if self.is_held_for_questions() && only_asks(meaning) {
            return Ok(());
        }
        let begins = meaning.begins;
        let is_one = meaning.statements.len() == 1;
        let is_harmful = meaning.writes || self.locks_or_begins(&meaning.statements);
        if self.is_held_for_questions() {
            self.let_go(Condition::Clean);
            return Ok(());
        }
        let is_over = |pin| match pin {
            // It ends the one before, which has done nothing that could be lost.
            Pin::Transaction => begins,
            // Closed, which the server has not answered yet.
            Pin::Cursor | Pin::LongData => !self.numbers.hold(),
            _ => false,
        };
        if self.journal.pins.iter().all(is_over) {
            self.forget_work();
            self.let_go(Condition::Unclean);
            return Ok(());
        }
        let is_by_name = meaning.locks_by_name();
        match is_by_name || is_harmful && !(is_one && self.is_in_read_only()) {
            true => Err(ErrorReply::bound_to_replica()),
            // The server has an answer to it.
            false => Ok(()),
        }
    }

    /// What a replica would do, and nobody else know of.
    fn locks_or_begins(&self, statements: &[RoutedStatement]) -> bool {
        let defaults = self.journal.transaction_defaults();
        statements.iter().any(|one| match one.kind {
            StatementClass::Begin(modes) => modes.or(defaults).read_only != Some(true),
            kind => kind == StatementClass::Lock || one.traits.any(RoutingTraits::LOCKS_ROWS),
        })
    }

    /// Its transaction is READ ONLY, as its server says.
    fn is_in_read_only(&self) -> bool {
        let status = self.server.as_ref().map(|one| one.conversation.status());
        status.is_some_and(|status| status.has(Status::READ_ONLY))
    }

    /// Whether the command is known to read and nothing else.
    fn only_reads(&self) -> bool {
        let meaning = self.unit.sense.meaning();
        meaning.is_some_and(|meaning| only_read(&meaning.statements))
    }

    /// What binds when it does not follow had better bind to the primary, while there is one; so
    /// does COMMIT, which by `completion_type` begins a transaction. A schema may not be at
    /// replicas.
    fn is_better_at_primary(&self, view: &ServiceSnapshot, own: &DatabaseSnapshot) -> bool {
        let meaning = self.unit.sense.meaning();
        let ends = meaning.is_some_and(|meaning| ends_another_s(&meaning.statements));
        let may_bind = ends || self.only_sets() || matches!(self.unit.what, CommandKind::InitDb);
        let primary = own.primary.and_then(|index| view.servers.get(index));
        let is_untried = primary.is_some_and(|server| !self.unit.tried.contains(&server.id));
        may_bind && is_untried && self.service.failover_queue.is_calm()
    }

    /// Settings to literals, and nothing else.
    fn may_be_set_again(&self) -> bool {
        let is_plain = |one: &RoutedStatement| {
            let calls_nothing = one.calls == Volatility::None && one.traits == RoutingTraits::NONE;
            one.kind == StatementClass::Setting && calls_nothing
        };
        let statements = self.unit.sense.meaning().map(|meaning| &meaning.statements);
        statements.is_some_and(|all| !all.is_empty() && all.iter().all(is_plain))
    }

    fn only_sets(&self) -> bool {
        let sets = |one: &RoutedStatement| one.kind == StatementClass::Setting;
        let meaning = self.unit.sense.meaning();
        meaning.is_some_and(|meaning| meaning.statements.iter().all(sets))
    }

    /// Texts, what was prepared, and what prepares it; but not what leaves a cursor, or values,
    /// where it runs: its session may write next.
    fn takes_part_in_split(&self) -> bool {
        let number = self.unit.what.number();
        let named = number.and_then(|number| self.numbers.get(number));
        let holds = named.is_some_and(|named| named.holds);
        let is_bulk = matches!(self.unit.what, CommandKind::Bulk(_));
        self.unit.sense.meaning().is_some() && !holds && !is_bulk
    }

    fn decision(&self, own: &DatabaseSnapshot, seen: route::ServerAvailability) -> Decision {
        let none: &[RoutedStatement] = &[];
        let meaning = self.unit.sense.meaning();
        let hint = meaning.and_then(|meaning| meaning.hint.as_ref());
        let unit = route::RoutingUnit {
            statements: meaning.map_or(none, |meaning| &meaning.statements),
            hint: hint.map(|hint| own.routed(hint)),
            rule: self.ruling.as_ref().and_then(Ruling::destination),
        };
        let session = route::SessionContext {
            autocommit: self.journal.autocommit(),
            defaults: self.journal.transaction_defaults(),
            changed_catalog: self.changed_catalog.is_some_and(|at| at == self.catalog()),
        };
        route::decide(&unit, &session, &own.split, &seen)
    }

    /// Whether it does no harm with other settings than its session's, so that it may be sent
    /// before the server has taken them.
    pub(super) fn is_harmless(&self) -> bool {
        let begins = self
            .unit
            .sense
            .meaning()
            .is_some_and(|meaning| meaning.begins);
        self.unit.is_read || begins || matches!(self.unit.what, CommandKind::Prepare(_))
    }
}

fn only_read(statements: &[RoutedStatement]) -> bool {
    let unit = route::RoutingUnit {
        statements,
        hint: None,
        rule: None,
    };
    let session = route::SessionContext::default();
    route::obstacles(&unit, &session).next().is_none()
}

/// Whether it asks about the statement before, which only the server that ran that can answer, and
/// does nothing else but read.
fn only_asks(meaning: &TextAnalysis) -> bool {
    const ASKS: RoutingTraits = RoutingTraits::REMEMBERS;
    let asked = meaning.statements.iter().map(|one| RoutedStatement {
        kind: match one.kind {
            // `@@warning_count`
            StatementClass::Asks | StatementClass::Server if one.traits.any(ASKS) => {
                StatementClass::Read
            }
            kind => kind,
        },
        traits: one.traits.without(ASKS),
        ..*one
    });
    let asked: SmallVec<[RoutedStatement; 1]> = asked.collect();
    !meaning.needs.is_empty() && only_read(&asked)
}

/// Whether a transaction ends that none of the statements has begun.
fn ends_another_s(statements: &[RoutedStatement]) -> bool {
    let mut kinds = statements.iter().map(|one| one.kind);
    let first = kinds.find(|kind| {
        matches!(
            kind,
            StatementClass::Begin(_) | StatementClass::EndTransaction
        )
    });
    first == Some(StatementClass::EndTransaction)
}
