//! Represents the command being processed, and routes it.

use std::sync::Arc;

use evenkeel_engine::clock;
use evenkeel_policy::connection_pool::Condition;
use evenkeel_policy::pins::{Pin, Pins};
use evenkeel_policy::route::retry::{Atomicity, Destination, Progress, RequestEffect};
use evenkeel_policy::route::{
    self, Decision, RoutedStatement, RoutingTraits, StatementClass, Volatility,
};
use evenkeel_wire::mysql::flags::Status;
use smallvec::SmallVec;

use super::Session;
use super::error_reply::ErrorReply;
use super::statements;
use crate::error_catalog;
use crate::service::ServiceSnapshot;
use crate::service::database::DatabaseSnapshot;
use crate::service::rules::AppliedRules;
use crate::session::placement::{CatchUpTarget, PlacementTarget, ReadRequest};
use crate::session::retry_history::RetryHistory;
use evenkeel_sql::mysql::LongTextReader;
use evenkeel_sql::session_state::mysql::{TextAnalysis, TransactionPart};

/// Time in milliseconds for which a session reads on the primary after a replica could not be
/// prepared for it.
const UNFIT_MS: u64 = 1_000;

/// One command of a client, and its progress.
#[derive(Default)]
pub(super) struct ActiveRequest {
    /// Bytes of the command, as far as they are kept.
    pub(super) command: Vec<u8>,
    /// True if the whole command is kept and can be sent again.
    pub(super) is_kept: bool,
    /// Reasons why the session was pinned before the command.
    pub(super) pins_before: Pins,
    /// Settings of the session that its server connection lacks.
    pub(super) missing: Option<Missing>,
    pub(super) what: CommandKind,
    pub(super) statement: CommandStatement,
    pub(super) is_read: bool,
    pub(super) may_write: bool,
    pub(super) atomicity: Atomicity,
    pub(super) progress: Progress,
    /// True if the server replied with an error.
    pub(super) has_failed: bool,
    /// Number of rows changed.
    pub(super) rows_affected: u64,
    /// Number of results received; assigns each result to its statement.
    pub(super) results: usize,
    /// Position that the server must reach before the command runs.
    pub(super) wait: Option<CatchUpTarget>,
    /// Timer that limits the wait if the server enforces no limit.
    pub(super) wait_timer: Option<std::pin::Pin<Box<dyn Future<Output = ()>>>>,
    /// Received part of the result of a wait or tracker query, or of a call of a function for named
    /// locks.
    pub(super) word: Vec<u8>,
    /// Reader of a text that is too long to be parsed.
    pub(super) long_text: Option<Box<LongTextReader>>,
    pub(super) retries: RetryHistory,
    pub(super) since_us: u64,
}

/// Settings to apply to a connection.
#[derive(Debug, Default)]
pub(super) struct Missing {
    pub(super) schema: Option<Box<[u8]>>,
    /// A single SET statement; empty if none is needed.
    pub(super) sql: Vec<u8>,
    /// Number of outstanding replies.
    pub(super) owed: u8,
}

/// Kind of a command. Statement ids are those of the client.
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
    /// Any other command with an OK, EOF or ERR reply.
    Simple,
}

impl CommandKind {
    /// Returns whether the command executes a statement.
    pub(super) fn is_run(&self) -> bool {
        matches!(
            self,
            CommandKind::Query | CommandKind::Execute(_) | CommandKind::Bulk(_)
        )
    }

    /// Returns the client's id of the statement that the command refers to.
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

/// Statement that a command contains or refers to.
#[derive(Default)]
pub(super) enum CommandStatement {
    /// The command contains no text.
    #[default]
    Nothing,
    /// Analysis of the command's text.
    Text(Arc<TextAnalysis>),
    /// Prepared statement that the command refers to.
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
    /// Chooses the server for the next command of a session without a server connection.
    pub(super) fn decide(&mut self, view: &ServiceSnapshot) -> PlacementTarget {
        self.active.is_read = false;
        let Some(database) = view.database().filter(|database| database.splits_reads()) else {
            return PlacementTarget::Primary;
        };
        // A command that a replica could not execute, or reported as a write, is not known to be a
        // read.
        let destination = self.active.retries.destination;
        if destination == Destination::Primary || !self.takes_part_in_split() {
            return PlacementTarget::Primary;
        }
        if self.is_better_at_primary(view, database) {
            // The effect of a setting ended with the connection on which it was made.
            self.active.is_read =
                self.may_be_set_again() || matches!(self.active.what, CommandKind::InitDb);
            return PlacementTarget::Primary;
        }
        let reading = ReadRequest {
            server_info: &self.core.service.server_info,
            token: &mut self.token,
            tried: &self.active.retries.tried,
            among: self.rules.as_ref().and_then(AppliedRules::server_group),
            may_wait: self.active.is_kept,
        };
        let found = reading.candidates(view, database);
        let decision = self.decision(database, found.availability());
        found.want_positions(&decision, &self.core.service.server_info);
        self.active.is_read = decision.is_read;
        if destination == Destination::PrimaryForRead || self.was_just_unfit() {
            return PlacementTarget::Primary;
        }
        let key = self.account.pool_user.user_number.get();
        let has_room = |index| self.core.acquirer.has_room(view, index);
        found.place(decision.target, database, key, has_room)
    }

    /// Returns whether a replica recently rejected the schema or settings of this session. Another
    /// attempt would cost a connection for each read.
    fn was_just_unfit(&mut self) -> bool {
        let is_recent = |since_ms: &u64| clock::now_ms().saturating_sub(*since_ms) < UNFIT_MS;
        self.unfit_since_ms = self.unfit_since_ms.filter(is_recent);
        self.unfit_since_ms.is_some()
    }

    /// Releases a replica that is held for follow-up queries, or whose pins are over, unless the
    /// command only reads.
    ///
    /// Fails if the session remains pinned to the replica and the command may write, lock or begin
    /// a writable transaction. A single such statement in a READ ONLY transaction is sent
    /// nevertheless, unless it locks by name: the server replies with the appropriate error.
    pub(super) fn leave_replica(&mut self) -> Result<(), ErrorReply> {
        let Some(meaning) = self.active.statement.meaning() else {
            return Ok(());
        };
        if !self.core.acquirer.is_at_replica() || self.core.keeps_connection() || self.only_reads()
        {
            return Ok(());
        }
        if self.is_held_for_questions() && (only_asks(meaning) || self.stays_for_results()) {
            return Ok(());
        }
        let begins = meaning.unit == TransactionPart::Begin;
        let is_one = meaning.statements.len() == 1;
        let is_harmful = meaning.writes() || self.locks_or_begins(&meaning.statements);
        if self.is_held_for_questions() {
            self.release_server(Condition::Clean);
            return Ok(());
        }
        let is_over = |pin| match pin {
            // The statement ends the previous transaction, which has changed nothing.
            Pin::Transaction => begins,
            // Closed by the client; the server has not confirmed it yet.
            Pin::Cursor | Pin::LongData => !self.statements.hold(),
            _ => false,
        };
        if self.state.pins.iter().all(is_over) {
            self.forget_work();
            self.release_server(Condition::Unclean);
            return Ok(());
        }
        let is_by_name = meaning.locks_by_name();
        match is_by_name || is_harmful && !(is_one && self.is_in_read_only()) {
            true => Err(ErrorReply::new(&error_catalog::PINNED_TO_REPLICA)),
            // The server replies with the appropriate error.
            false => Ok(()),
        }
    }

    /// Returns whether a statement takes locks or begins a writable transaction, which on a replica
    /// would be invisible to other servers.
    fn locks_or_begins(&self, statements: &[RoutedStatement]) -> bool {
        let defaults = self.state.transaction_defaults();
        statements.iter().any(|one| match one.kind {
            StatementClass::Begin(modes) => modes.or(defaults).read_only != Some(true),
            kind => kind == StatementClass::Lock || one.traits.any(RoutingTraits::LOCKS_ROWS),
        })
    }

    /// Returns whether the server reports a READ ONLY transaction.
    fn is_in_read_only(&self) -> bool {
        let status = self
            .core
            .server
            .as_ref()
            .map(|one| one.conversation.status());
        status.is_some_and(|status| status.has(Status::READ_ONLY))
    }

    /// Returns whether the command is known to only read.
    fn only_reads(&self) -> bool {
        let meaning = self.active.statement.meaning();
        meaning.is_some_and(|meaning| only_read(&meaning.statements))
    }

    /// Returns whether the command should run on the primary while one is available. A command that
    /// may pin the session should pin it to the primary. COMMIT is included since it begins a
    /// transaction with `completion_type`; a schema may be missing on replicas.
    fn is_better_at_primary(&self, view: &ServiceSnapshot, database: &DatabaseSnapshot) -> bool {
        let meaning = self.active.statement.meaning();
        let ends = meaning.is_some_and(|meaning| ends_another_s(&meaning.statements));
        let may_bind = ends || self.only_sets() || matches!(self.active.what, CommandKind::InitDb);
        let primary = database.primary.and_then(|index| view.servers.get(index));
        let is_untried =
            primary.is_some_and(|server| !self.active.retries.tried.contains(&server.id));
        may_bind && is_untried && self.core.service.failover_queue.is_idle()
    }

    /// Returns whether the command only assigns literals to settings.
    pub(super) fn may_be_set_again(&self) -> bool {
        let is_plain = |one: &RoutedStatement| {
            let calls_nothing = one.calls == Volatility::None && one.traits == RoutingTraits::NONE;
            one.kind == StatementClass::Setting && calls_nothing
        };
        let statements = self
            .active
            .statement
            .meaning()
            .map(|meaning| &meaning.statements);
        statements.is_some_and(|all| !all.is_empty() && all.iter().all(is_plain))
    }

    fn only_sets(&self) -> bool {
        let sets = |one: &RoutedStatement| one.kind == StatementClass::Setting;
        let meaning = self.active.statement.meaning();
        meaning.is_some_and(|meaning| meaning.statements.iter().all(sets))
    }

    /// Returns whether the command may be routed to a replica: texts, prepared statements and their
    /// preparation. Commands that leave a cursor or values on the server are excluded, since their
    /// session may write next.
    fn takes_part_in_split(&self) -> bool {
        let number = self.active.what.number();
        let named = number.and_then(|number| self.statements.get(number));
        let holds = named.is_some_and(|named| named.holds);
        let is_bulk = matches!(self.active.what, CommandKind::Bulk(_));
        self.active.statement.meaning().is_some() && !holds && !is_bulk
    }

    fn decision(
        &self,
        database: &DatabaseSnapshot,
        availability: route::ServerAvailability,
    ) -> Decision {
        let none: &[RoutedStatement] = &[];
        let meaning = self.active.statement.meaning();
        let hint = meaning.and_then(|meaning| meaning.hint.as_ref());
        let active = route::RoutingUnit {
            statements: meaning.map_or(none, |meaning| &meaning.statements),
            hint: hint.map(|hint| database.resolve_hint(hint)),
            rule: self.rules.as_ref().and_then(AppliedRules::destination),
        };
        let session = route::SessionContext {
            autocommit: self.state.autocommit(),
            defaults: self.state.transaction_defaults(),
            changed_catalog: self.changed_catalog.is_some_and(|at| at == self.catalog()),
        };
        route::decide(&active, &session, &database.split, &availability)
    }

    /// Returns whether the command is safe to send before the server has applied the session's
    /// settings.
    pub(super) fn is_harmless(&self) -> bool {
        self.effect() != RequestEffect::Writes
    }

    /// Returns the effects that the command may have.
    pub(super) fn effect(&self) -> RequestEffect {
        let meaning = self.active.statement.meaning();
        if self.active.is_read {
            RequestEffect::Reads
        } else if matches!(self.active.what, CommandKind::Prepare(_)) {
            RequestEffect::Prepares
        } else if meaning.is_some_and(|meaning| meaning.unit == TransactionPart::Begin) {
            RequestEffect::Begins
        } else {
            RequestEffect::Writes
        }
    }
}

fn only_read(statements: &[RoutedStatement]) -> bool {
    let active = route::RoutingUnit {
        statements,
        hint: None,
        rule: None,
    };
    let session = route::SessionContext::default();
    route::obstacles(&active, &session).next().is_none()
}

/// Returns whether the statements only read, and query state of the previous statement, which only
/// its server has.
fn only_asks(meaning: &TextAnalysis) -> bool {
    const ASKS: RoutingTraits = RoutingTraits::REMEMBERS;
    let pending = meaning.statements.iter().map(|one| RoutedStatement {
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
    let pending: SmallVec<[RoutedStatement; 1]> = pending.collect();
    !meaning.needs.is_empty() && only_read(&pending)
}

/// Returns whether a transaction ends that none of the statements has begun.
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
