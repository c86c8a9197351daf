//! The command that is under way, and where it is to run.

use std::sync::Arc;

use evenkeel_policy::causality::{
    Choice, Consistency, Freshness, Position, Replica, Requires, Token, choose, judge,
};
use evenkeel_policy::cluster::Gtids;
use evenkeel_policy::lending::Condition;
use evenkeel_policy::pins::{Pin, Pins};
use evenkeel_policy::pool::{Pick, Request as PickRequest, Tried};
use evenkeel_policy::route::{self, Decision, Hint, Kind, Statement, Target, Transaction};
use smallvec::SmallVec;

use super::complaint::Complaint;
use super::statements;
use super::{At, Session};
use crate::clock;
use crate::dice::dice;
use crate::service::View;
use crate::service::database::DatabaseView;
use crate::state::meaning;
use crate::state::mysql::Meaning;

/// One command of a client, and how it fares.
#[derive(Default)]
pub(super) struct Unit {
    /// Its bytes, as far as they are kept.
    pub(super) command: Vec<u8>,
    /// All of it is there, and can be sent again.
    pub(super) is_kept: bool,
    /// What bound the session before it.
    pub(super) bonds_before: Pins,
    /// What the session has set and the connection that it has got has not.
    pub(super) missing: Option<Missing>,
    pub(super) what: What,
    pub(super) sense: Sense,
    pub(super) is_read: bool,
    pub(super) may_write: bool,
    /// If it was turned away, nothing of it was run.
    pub(super) is_atomic: bool,
    pub(super) reached_server: bool,
    pub(super) reached_client: bool,
    /// The server has answered by an error.
    pub(super) has_failed: bool,
    /// Results that have come, so that each is told to its statement.
    pub(super) results: usize,
    /// Where in the log the server has put what it wrote.
    pub(super) committed: Option<Gtids>,
    /// What a replica must have before it reads; what it says of that.
    pub(super) wait: Option<Position>,
    pub(super) word: Vec<u8>,
    /// Servers that failed it.
    pub(super) tried: SmallVec<[u64; 2]>,
    /// How often it was run again.
    pub(super) rescues: u32,
    /// It must not go to a replica (again).
    pub(super) primary_only: bool,
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
pub(super) enum What {
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
    /// COM_REGISTER_SLAVE.
    Replica,
    Binlog,
    /// Whatever else OK, EOF or ERR answers.
    Simple,
}

impl What {
    /// Whose statement it is about.
    pub(super) fn number(&self) -> Option<u32> {
        match self {
            What::Execute(number)
            | What::Bulk(number)
            | What::Fetch(number)
            | What::LongData(number)
            | What::ResetStatement(number) => Some(*number),
            _ => None,
        }
    }
}

/// What a command means.
#[derive(Default)]
pub(super) enum Sense {
    /// Nothing that is a text.
    #[default]
    Nothing,
    /// Its text was read.
    Text(Meaning),
    /// It executes what was prepared.
    Statement(Arc<statements::Statement>),
}

impl Sense {
    pub(super) fn meaning(&self) -> Option<&Meaning> {
        match self {
            Sense::Nothing => None,
            Sense::Text(meaning) => Some(meaning),
            Sense::Statement(statement) => Some(&statement.meaning),
        }
    }
}

/// Where a command is to run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Wanted {
    /// Wherever writes go.
    Primary,
    /// At one of the view's servers, whose place among those that read is taken.
    Reader(usize),
    /// At this one of the view's servers: a hint says so, or it will have what must be seen.
    Named(usize),
}

/// Who may serve a read of a session.
#[derive(Default)]
struct Readers {
    /// Replicas that take reads and have not failed it.
    replicas: usize,
    /// Those of them that have all that it must see.
    fresh: usize,
    /// One that will have it soon, and what it is to wait for.
    soon: Option<(usize, Position)>,
    /// Servers that must not be chosen.
    barred: Tried,
}

impl Session<'_> {
    /// Where the command ahead is to run, for a session that has no server connection.
    pub(super) fn decide(&mut self, view: &View) -> Wanted {
        self.unit.wait = None;
        let is_split = |own: &&DatabaseView| own.split.reads && !own.session_mode;
        let Some(own) = view.database.as_ref().filter(is_split) else {
            return self.goes_to_primary();
        };
        if !self.takes_part_in_split() || self.is_better_at_primary(own) {
            return self.goes_to_primary();
        }
        let readers = self.readers(view, own);
        let decision = self.decision(own, &readers);
        if self.unit.primary_only {
            // A replica found that it writes, or could not run it: that it only reads is not known.
            return self.goes_to_primary();
        }
        self.unit.is_read = decision.is_read;
        match decision.target {
            Target::Primary | Target::Held => Wanted::Primary,
            Target::Server(index) => Wanted::Named(index),
            Target::Readers { and_primary } => self.reader(own, readers, and_primary),
        }
    }

    /// A session that is at a replica for a question or a READ ONLY transaction, and wants to do
    /// what is not for a replica: even where that would let it.
    pub(super) fn leave_replica(&mut self) -> Result<(), Complaint> {
        let is_at_replica = self.at.as_ref().is_some_and(|at| at.is_replica);
        let Some(meaning) = self.unit.sense.meaning() else {
            return Ok(());
        };
        if !is_at_replica || self.keeps_connection() || self.only_reads() {
            return Ok(());
        }
        let (writes, begins) = (meaning.writes, meaning.begins);
        let is_one = meaning.statements.len() == 1;
        if self.is_held_for_questions() {
            self.let_go(Condition::Clean);
            return Ok(());
        }
        let is_transaction = |pin| pin == Pin::Transaction;
        if begins && self.journal.pins.iter().all(is_transaction) {
            // It ends the one before, which has done nothing that could be lost.
            self.forget_work();
            self.let_go(Condition::Unclean);
            return Ok(());
        }
        let is_open = self.journal.pins.has(Pin::Transaction);
        match writes && !(is_open && is_one) {
            true => Err(Complaint::bound_to_replica()),
            // The server has an answer to it.
            false => Ok(()),
        }
    }

    /// Whether the command is known to read and nothing else.
    fn only_reads(&self) -> bool {
        let Some(meaning) = self.unit.sense.meaning() else {
            return false;
        };
        let unit = route::Unit {
            statements: &meaning.statements,
            hint: None,
        };
        let session = route::Session::default();
        route::obstacles(&unit, &session).next().is_none()
    }

    /// What binds when it does not follow had better bind to the primary, while there is one.
    fn is_better_at_primary(&self, own: &DatabaseView) -> bool {
        let sets = |one: &Statement| one.kind == Kind::Setting;
        let meaning = self.unit.sense.meaning();
        let only_sets = meaning.is_some_and(|meaning| meaning.statements.iter().all(sets));
        only_sets && own.primary.is_some() && self.service.line.is_calm()
    }

    fn goes_to_primary(&mut self) -> Wanted {
        self.unit.is_read = false;
        Wanted::Primary
    }

    /// Texts, what was prepared, and what prepares it.
    fn takes_part_in_split(&self) -> bool {
        self.unit.sense.meaning().is_some() && !matches!(self.unit.what, What::Bulk(_))
    }

    fn decision(&self, own: &DatabaseView, readers: &Readers) -> Decision {
        let none: &[Statement] = &[];
        let meaning = self.unit.sense.meaning();
        let hint = meaning.and_then(|meaning| meaning.hint.as_ref());
        let hint = hint.map(|hint| match hint {
            meaning::Hint::Primary => Hint::Primary,
            meaning::Hint::Replica => Hint::Replica,
            meaning::Hint::Server(name) => {
                let mut names = own.names.iter();
                Hint::Server(names.position(|known| known.as_bytes() == &**name))
            }
        });
        let unit = route::Unit {
            statements: meaning.map_or(none, |meaning| &meaning.statements),
            hint,
        };
        let session = route::Session {
            pinned: None,
            transaction: Transaction::None,
            autocommit: self.journal.autocommit(),
            defaults: self.journal.transaction_defaults(),
            changed_catalog: self.changed_catalog.is_some_and(|at| at == self.catalog()),
        };
        let seen = route::View {
            replicas: readers.replicas,
            replicas_fresh: readers.fresh + usize::from(readers.soon.is_some()),
        };
        route::decide(&unit, &session, &own.split, &seen)
    }

    /// The servers as this session may read from them now.
    fn readers(&mut self, view: &View, own: &DatabaseView) -> Readers {
        self.settle_token(own);
        let global = self.global_token(own);
        let requires = match own.consistency {
            Consistency::Eventual => Requires::Nothing,
            _ => global.as_ref().unwrap_or(&self.token).requires(own.epoch),
        };
        let positions = self.service.knowledge.positions();
        let now_us = clock::now_us();
        let judged = |replica: &Replica<'_>| judge(requires, replica, now_us, &own.causality);
        let mut readers = Readers::default();
        let mut stale = SmallVec::<[(usize, u64); 4]>::new();
        for (index, server) in view.servers.iter().enumerate() {
            let is_primary = own.primary == Some(index);
            let is_tried = self.unit.tried.contains(&server.id);
            let is_replica = own.replicas[index] && !is_tried;
            let is_fresh = is_replica && judged(&positions.replica(server.id)) == Freshness::Fresh;
            readers.replicas += usize::from(is_replica);
            readers.fresh += usize::from(is_fresh);
            if is_replica && !is_fresh {
                stale.push((index, server.id));
            }
            if is_tried || !is_primary && !is_fresh {
                readers.barred.insert(index);
            }
        }
        if let (0, Requires::Position(target)) = (readers.fresh, requires) {
            let candidates = stale.iter().map(|(_, id)| positions.replica(*id));
            let choice = choose(requires, candidates, now_us, &own.causality);
            if let Choice::Wait { index, .. } = choice {
                readers.soon = Some((stale[index].0, target.clone()));
            }
        }
        readers
    }

    /// What the session wrote has a position once the primary was asked for one.
    fn settle_token(&mut self, own: &DatabaseView) {
        if self.token.requires(own.epoch) == Requires::Nothing {
            return;
        }
        if let Some(sample) = &self.service.knowledge.positions().sample {
            self.token.settle(sample);
        }
    }

    /// What any session wrote, where that is to be seen.
    fn global_token(&self, own: &DatabaseView) -> Option<Token> {
        if own.consistency != Consistency::Global {
            return None;
        }
        let mut token = self.service.knowledge.writes().token(own.epoch);
        if let Some(sample) = &self.service.knowledge.positions().sample {
            token.settle(sample);
        }
        Some(token)
    }

    /// One of those that may serve a read, as the service balances them.
    fn reader(&mut self, own: &DatabaseView, readers: Readers, and_primary: bool) -> Wanted {
        // If it does not come, the command is to be run elsewhere.
        if let Some((index, position)) = readers.soon.filter(|_| self.unit.is_kept) {
            self.unit.wait = Some(position);
            return Wanted::Named(index);
        }
        let mut barred = readers.barred;
        if let Some(primary) = own.primary.filter(|_| !and_primary) {
            barred.insert(primary);
        }
        let request = PickRequest {
            key: self.account.who.user_number,
            tried: &barred,
            random: dice(),
            now_us: clock::now_us(),
        };
        match own.readers.pick(&request) {
            Pick::Server(index) if !barred.contains(index) => Wanted::Reader(index),
            Pick::Server(index) => {
                own.busy[index].release();
                Wanted::Primary
            }
            Pick::AllFull | Pick::NoneUp => Wanted::Primary,
        }
    }

    /// Whether it does no harm with other settings than its session's, so that it may be sent
    /// before the server has taken them.
    pub(super) fn is_harmless(&self) -> bool {
        let begins = self
            .unit
            .sense
            .meaning()
            .is_some_and(|meaning| meaning.begins);
        self.unit.is_read || begins || matches!(self.unit.what, What::Prepare(_))
    }
}

impl At {
    /// A server of the view; `is_reserved`: its place among those that read is taken already.
    pub(super) fn new(view: &View, index: usize, is_reserved: bool) -> Option<Self> {
        let own = view.database.as_ref()?;
        let busy = Arc::clone(&own.busy[index]);
        if !is_reserved {
            // Without a limit: it only counts.
            let _ = busy.try_reserve();
        }
        Some(Self {
            server: Arc::clone(&view.servers[index]),
            is_replica: own.primary != Some(index),
            busy,
            epoch: own.epoch,
            writes: false,
        })
    }
}
