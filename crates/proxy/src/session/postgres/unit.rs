//! What a client wants next, as far as it decides where that runs: one query, or a batch up to its
//! Sync.

use std::sync::Arc;

use evenkeel_policy::causality::{Consistency, Freshness, Requires, Token, judge};
use evenkeel_policy::pool::{Pick, Request as PickRequest, Tried};
use evenkeel_policy::route::{self, Decision, Hint, Kind, Statement, Target, Traits, Volatility};
use evenkeel_wire::postgres::Parsed;
use evenkeel_wire::postgres::TransactionStatus;
use evenkeel_wire::postgres::build;
use evenkeel_wire::postgres::conversation::Request;
use evenkeel_wire::postgres::frame::Header;
use evenkeel_wire::postgres::names::{names, parse_parts};
use evenkeel_wire::postgres::requests::Step;
use smallvec::SmallVec;

use super::complaint::Complaint;
use super::{At, End, KEPT_LENGTH_MAX, Session};
use crate::clock;
use crate::dice::dice;
use crate::service::View;
use crate::service::database::DatabaseView;
use crate::state::meaning::{self, Meaning};

/// What the client wants done as one, and how it fares.
pub(super) struct Unit {
    /// Its bytes, while they can be sent again.
    pub(super) kept: Option<Vec<u8>>,
    pub(super) is_read: bool,
    pub(super) may_write: bool,
    /// All of it has been sent to a server.
    pub(super) is_sent: bool,
    pub(super) reached_server: bool,
    pub(super) reached_client: bool,
    /// Servers that failed it.
    pub(super) tried: SmallVec<[u64; 2]>,
    /// If it was turned away, nothing of it was run.
    pub(super) is_atomic: bool,
    /// The server's last word was passed on.
    pub(super) fatal_was_sent: bool,
    /// How often it was run again.
    pub(super) rescues: u32,
    /// It must not go to a replica (again).
    pub(super) primary_only: bool,
    pub(super) since_us: u64,
    /// The rest of a batch that was refused is passed over up to its Sync.
    pub(super) skipping: bool,
}

impl Unit {
    pub(super) fn new() -> Self {
        Self {
            kept: Some(Vec::new()),
            is_read: false,
            may_write: false,
            is_sent: false,
            reached_server: false,
            reached_client: false,
            tried: SmallVec::new(),
            is_atomic: true,
            fatal_was_sent: false,
            rescues: 0,
            primary_only: false,
            since_us: 0,
            skipping: false,
        }
    }
}

/// What the bytes of a client that has no server connection begin with.
pub(super) enum Look {
    /// Not enough to tell.
    More,
    /// Something that needs no server; so many bytes of it are here.
    Local(usize),
    /// It leaves.
    Leave,
    /// Something for a server of this view.
    Unit(Wanted, Arc<View>),
}

/// Where a unit is to run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Wanted {
    /// Wherever writes go.
    Primary,
    /// At one of the view's servers, whose place among those that read is taken.
    Reader(usize),
    /// At this one of the view's servers, because a hint says so.
    Named(usize),
}

/// Who may serve a read of a session.
#[derive(Default)]
struct Readers {
    /// Replicas that take reads and have not failed it.
    replicas: usize,
    /// Those of them that have all that it must see.
    fresh: usize,
    /// Servers that must not be chosen.
    barred: Tried,
}

/// What is known of a unit while it is looked through.
#[derive(Default)]
struct Draft {
    statements: SmallVec<[Statement; 4]>,
    hint: Option<meaning::Hint>,
    is_complete: bool,
    may_write: bool,
}

const UNKNOWN: Statement = Statement {
    kind: Kind::Unknown,
    traits: Traits::OBSCURE,
    calls: Volatility::Unknown,
};

impl Draft {
    fn add(&mut self, meaning: &Meaning) {
        self.statements.extend_from_slice(&meaning.statements);
        self.may_write |= meaning.writes;
        if self.hint.is_none() {
            self.hint.clone_from(&meaning.hint);
        }
    }

    fn add_unknown(&mut self) {
        self.statements.push(UNKNOWN);
        self.may_write = true;
    }
}

impl Session<'_> {
    /// Looks at what a client without a server connection wants.
    pub(super) fn look(&mut self, bytes: &[u8]) -> Result<Look, End> {
        self.effects.read_ahead = None;
        let mut walker = self.walker;
        let step = walker.next(bytes);
        let (passed, request, length) = match step {
            Step::Message {
                passed,
                request,
                length,
                ..
            }
            | Step::Beginning {
                passed,
                request,
                length,
                ..
            } => (passed, request, length),
            Step::Wait { passed: 0, .. } => return Ok(Look::More),
            Step::Wait { passed, .. } => {
                self.walker = walker;
                return Ok(Look::Local(passed));
            }
            Step::Invalid(fault) => return Err(End::Fatal(Complaint::protocol(fault))),
        };
        if request == Request::Terminate {
            return Ok(Look::Leave);
        }
        let message = bytes.get(passed..passed + length).unwrap_or_default();
        if self.is_local(request, message) {
            self.walker = walker;
            return Ok(Look::Local(passed + length));
        }
        let view = self.seat.service().view_owned();
        let is_split = |own: &&DatabaseView| own.split.reads && !own.session_mode;
        let Some(own) = view.database.as_ref().filter(is_split) else {
            self.unit.is_read = false;
            self.unit.may_write = false;
            return Ok(Look::Unit(Wanted::Primary, view));
        };
        let mut draft = self.draft(bytes)?;
        if !draft.is_complete {
            if bytes.len() < KEPT_LENGTH_MAX {
                return Ok(Look::More);
            }
            // What comes behind it in the same batch may be a write.
            draft.add_unknown();
        }
        let wanted = self.decide(&view, own, &draft);
        Ok(Look::Unit(wanted, view))
    }

    /// Does what needs no server, if it is that.
    fn is_local(&mut self, request: Request, message: &[u8]) -> bool {
        if self.unit.skipping && request != Request::Sync {
            return true;
        }
        match request {
            Request::Sync => {
                self.unit.skipping = false;
                build::ready_for_query(self.answers(), TransactionStatus::Idle);
                true
            }
            // Nothing is under way, and COPY data that comes now is of one that has failed.
            Request::Flush | Request::CopyData | Request::CopyEnd => true,
            Request::Close => {
                self.close_name(message);
                build::empty(self.answers(), b'3');
                true
            }
            _ => false,
        }
    }

    fn close_name(&mut self, message: &[u8]) {
        let header = Header {
            tag: b'C',
            body_length: u32::try_from(message.len().saturating_sub(5)).unwrap_or(u32::MAX),
        };
        if let Parsed::Frame(found, _) = names(header, message)
            && let Some(name) = found.statement
        {
            self.forget_name(name.of(message));
        }
    }

    fn draft(&mut self, bytes: &[u8]) -> Result<Draft, End> {
        let mut draft = Draft::default();
        let mut walker = self.walker;
        let mut at = 0;
        while !draft.is_complete {
            match walker.next(bytes.get(at..).unwrap_or_default()) {
                Step::Message {
                    passed,
                    header,
                    request,
                    length,
                } => {
                    at += passed;
                    let message = bytes.get(at..at + length).unwrap_or_default();
                    self.add(&mut draft, header, request, message);
                    at += length;
                }
                Step::Beginning {
                    passed,
                    header,
                    request,
                    length,
                } => {
                    at += passed;
                    let message = bytes.get(at..at + length).unwrap_or_default();
                    if matches!(request, Request::Query | Request::Parse) {
                        draft.add_unknown();
                        draft.is_complete = true;
                    } else {
                        self.add(&mut draft, header, request, message);
                    }
                    at += length;
                }
                Step::Wait { .. } => break,
                Step::Invalid(fault) => return Err(End::Fatal(Complaint::protocol(fault))),
            }
        }
        Ok(draft)
    }

    fn add(&mut self, draft: &mut Draft, header: Header, request: Request, message: &[u8]) {
        match request {
            Request::Query => {
                let meaning = self.read(text_of_query(message));
                draft.add(&meaning);
                self.effects.read_ahead = Some(meaning);
                draft.is_complete = true;
            }
            Request::Parse => match parse_parts(message) {
                Some(parts) => {
                    let text = message.get(parts.text).unwrap_or_default();
                    draft.add(&self.read(text));
                }
                None => draft.add_unknown(),
            },
            Request::Bind | Request::DescribeStatement => {
                self.add_named(draft, header, message);
            }
            Request::FunctionCall => {
                draft.add_unknown();
                draft.is_complete = true;
            }
            Request::Sync | Request::Flush | Request::Terminate => draft.is_complete = true,
            _ => {}
        }
    }

    /// A batch that binds what an earlier one has prepared.
    fn add_named(&mut self, draft: &mut Draft, header: Header, message: &[u8]) {
        let Parsed::Frame(found, _) = names(header, message) else {
            return draft.add_unknown();
        };
        let Some(name) = found.statement else { return };
        if !name.is_named() {
            // The Parse of the same batch was added; one of an earlier batch is the last one.
            if draft.statements.is_empty() {
                match &self.unnamed.meaning {
                    Some(meaning) => draft.add(meaning),
                    None => draft.add_unknown(),
                }
            }
            return;
        }
        match self.names.get(name.of(message)) {
            Some(statement) => {
                let statement = self.current(&Arc::clone(statement));
                draft.add(&statement.meaning);
            }
            // It is named in this very batch, and was added, or it does not exist.
            None if !draft.statements.is_empty() => {}
            None => draft.add_unknown(),
        }
    }

    fn decide(&mut self, view: &View, own: &DatabaseView, draft: &Draft) -> Wanted {
        let readers = self.readers(view, own);
        let decision = self.decision(own, draft, &readers);
        if self.unit.primary_only {
            // A replica found that it writes, or could not run it: that it only reads is not known.
            self.unit.may_write = true;
            return Wanted::Primary;
        }
        self.unit.is_read = decision.is_read;
        self.unit.may_write = draft.may_write || !decision.is_read;
        match decision.target {
            Target::Primary | Target::Held => Wanted::Primary,
            Target::Server(index) => Wanted::Named(index),
            Target::Readers { and_primary } => self.reader(own, readers, and_primary),
        }
    }

    fn decision(&self, own: &DatabaseView, draft: &Draft, readers: &Readers) -> Decision {
        let hint = draft.hint.as_ref().map(|hint| match hint {
            meaning::Hint::Primary => Hint::Primary,
            meaning::Hint::Replica => Hint::Replica,
            meaning::Hint::Server(name) => {
                let mut names = own.names.iter();
                Hint::Server(names.position(|known| known.as_bytes() == &**name))
            }
        });
        let unit = route::Unit {
            statements: &draft.statements,
            hint,
        };
        let session = route::Session {
            defaults: self.journal.transaction_defaults(),
            changed_catalog: self.changed_catalog_us > 0
                && !self.account.knows_catalog_until(self.changed_catalog_us),
            ..route::Session::default()
        };
        let seen = route::View {
            replicas: readers.replicas,
            replicas_fresh: readers.fresh,
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
        let positions = self.shared.knowledge.positions();
        let now_us = clock::now_us();
        let may_read = |server_id: u64| {
            let replica = positions.replica(server_id);
            let freshness = judge(requires, &replica, now_us, &own.causality);
            matches!(freshness, Freshness::Fresh | Freshness::Causal)
        };
        let mut readers = Readers::default();
        for (index, server) in view.servers.iter().enumerate() {
            let is_primary = own.primary == Some(index);
            let is_tried = self.unit.tried.contains(&server.id);
            let is_replica = own.replicas[index] && !is_tried;
            let is_fresh = is_replica && (requires == Requires::Nothing || may_read(server.id));
            readers.replicas += usize::from(is_replica);
            readers.fresh += usize::from(is_fresh);
            if is_tried || !is_primary && !is_fresh {
                readers.barred.insert(index);
            }
        }
        readers
    }

    /// What the session wrote has a position once the primary was asked for one.
    fn settle_token(&mut self, own: &DatabaseView) {
        if self.token.requires(own.epoch) == Requires::Nothing {
            return;
        }
        if let Some(sample) = &self.shared.knowledge.positions().sample {
            self.token.settle(sample);
        }
    }

    /// What any session wrote, where that is to be seen.
    fn global_token(&self, own: &DatabaseView) -> Option<Token> {
        if own.consistency != Consistency::Global {
            return None;
        }
        let mut token = self.shared.knowledge.writes().token(own.epoch);
        if let Some(sample) = &self.shared.knowledge.positions().sample {
            token.settle(sample);
        }
        Some(token)
    }

    /// One of those that may serve a read, as the service balances them.
    fn reader(&self, own: &DatabaseView, readers: Readers, and_primary: bool) -> Wanted {
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
}

/// The SQL text of a Query message.
pub(super) fn text_of_query(message: &[u8]) -> &[u8] {
    let text = message.get(5..).unwrap_or_default();
    text.strip_suffix(b"\0").unwrap_or(text)
}

impl At {
    /// A server of the view; `is_reserved`: its place among those that read is taken already.
    pub(super) fn new(view: &View, index: usize, is_reserved: bool) -> Option<Self> {
        let postgres = view.database.as_ref()?;
        let busy = Arc::clone(&postgres.busy[index]);
        if !is_reserved {
            // Without a limit: it only counts.
            let _ = busy.try_reserve();
        }
        Some(Self {
            server: Arc::clone(&view.servers[index]),
            is_replica: postgres.primary != Some(index),
            busy,
            epoch: postgres.epoch,
        })
    }
}
