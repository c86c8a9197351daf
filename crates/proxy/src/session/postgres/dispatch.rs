//! Analyzes and routes the client's next request: one query, or a batch up to its Sync.

use std::sync::Arc;

use arc_swap::Guard;
use evenkeel_policy::route::retry::Destination;
use evenkeel_policy::route::{
    self, Decision, RouteTarget, RoutedStatement, RoutingTraits, StatementClass, Volatility,
};
use evenkeel_wire::postgres::client_scanner::Step;
use evenkeel_wire::postgres::conversation::Request;
use evenkeel_wire::postgres::frame::Header;
use evenkeel_wire::postgres::names::{names, parse_parts};
use evenkeel_wire::postgres::{Parsed, TransactionStatus, build};
use smallvec::SmallVec;

use super::active_request::{Access, BatchTail, text_of_query};
use super::error_reply::ErrorReply;
use super::server::ServerConnection;
use super::{ExitReason, KEPT_LENGTH_MAX, Session};
use crate::error_catalog;
use crate::service::ServiceSnapshot;
use crate::service::database::DatabaseSnapshot;
use crate::service::rules::AppliedRules;
use crate::session::handle::SessionEvent;
use crate::session::placement::{PlacementTarget, ReadRequest};
use evenkeel_sql::session_state::analysis::{self, TextAnalysis};

/// Classification of the input of a client without a server connection.
pub(super) enum RequestDisposition {
    /// Incomplete input.
    More,
    /// Message that needs no server; this many bytes of it have arrived.
    Local(usize),
    Leave,
    /// Request for a server of this snapshot.
    Unit(PlacementTarget, Guard<Arc<ServiceSnapshot>>),
}

/// Analysis of a request, built message by message.
#[derive(Default)]
pub(super) struct Draft {
    statements: SmallVec<[RoutedStatement; 4]>,
    hint: Option<analysis::RoutingHint>,
    extent: Extent,
    pub(super) may_write: bool,
    pub(super) rules: Option<AppliedRules>,
    /// True if it executes something besides preparing.
    runs: bool,
    /// True if it executes a portal.
    executes: bool,
    /// True if the analysis of its unnamed statement is included.
    knows_unnamed: bool,
    /// Number of messages analyzed.
    messages: usize,
}

/// Analyzed part of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
enum Extent {
    /// Part that has arrived. Routing waits for more.
    #[default]
    Beginning,
    /// Part that has arrived. Routing does not wait, since the client waits for a reply, or
    /// sends a message too long to be analyzed.
    Urgent,
    /// All of it.
    Whole,
}

const UNKNOWN: RoutedStatement = RoutedStatement {
    kind: StatementClass::Unknown,
    traits: RoutingTraits::OBSCURE,
    calls: Volatility::Unknown,
};

impl Draft {
    /// Returns whether the request can be routed.
    fn is_ripe(&self) -> bool {
        self.extent > Extent::Beginning
    }

    /// Returns whether the end of the request has arrived.
    fn is_whole(&self) -> bool {
        self.extent == Extent::Whole
    }

    fn reaches(&mut self, extent: Extent) {
        self.extent = self.extent.max(extent);
    }

    fn add(&mut self, analysis: &TextAnalysis) {
        self.statements.extend_from_slice(&analysis.statements);
        self.may_write |= analysis.writes;
        if self.hint.is_none() {
            self.hint.clone_from(&analysis.hint);
        }
    }

    fn add_rules(&mut self, rules: Option<AppliedRules>) {
        self.rules = AppliedRules::join(self.rules.take(), rules);
    }

    fn add_unknown(&mut self) {
        self.statements.push(UNKNOWN);
        self.may_write = true;
    }
}

impl Session<'_> {
    /// Classifies the input of a client without a server connection.
    pub(super) fn dispatch(&mut self, bytes: &[u8]) -> Result<RequestDisposition, ExitReason> {
        self.effects.read_ahead = None;
        let mut scanner = self.scanner;
        let step = scanner.next(bytes);
        let (passed, request, length) = match step {
            Step::Message {
                passed,
                request,
                length,
                ..
            } => (passed, request, length),
            Step::Wait { passed: 0, .. } => return Ok(RequestDisposition::More),
            Step::Wait { passed, .. } => {
                self.scanner = scanner;
                return Ok(RequestDisposition::Local(passed));
            }
            Step::Invalid(fault) => return Err(ExitReason::Fatal(ErrorReply::protocol(fault))),
        };
        if passed > 0 {
            // Rest of a refused message: no request begins with it.
            let _ = self.scanner.next(&bytes[..passed]);
            return Ok(RequestDisposition::Local(passed));
        }
        if request == Request::Terminate {
            return Ok(RequestDisposition::Leave);
        }
        let message = bytes.get(..length).unwrap_or_default();
        if self.is_local(request, message) {
            self.scanner = scanner;
            return Ok(RequestDisposition::Local(length));
        }
        let view = self.core.permit.service().snapshot();
        let matters = |one: &&DatabaseSnapshot| one.splits_reads() || one.rules.is_some();
        let Some(database) = view.database().filter(matters) else {
            self.active.access = Access::Unclassified;
            return Ok(RequestDisposition::Unit(PlacementTarget::Primary, view));
        };
        let mut draft = self.draft(bytes)?;
        self.active.tail = match draft.is_whole() {
            true => BatchTail::None,
            false => BatchTail::After(draft.messages),
        };
        if !draft.is_ripe() {
            if bytes.len() < KEPT_LENGTH_MAX {
                return Ok(RequestDisposition::More);
            }
            // A write may follow in the same batch.
            draft.add_unknown();
        } else if let Some(words) = self.apply_rules_early(draft.rules.take(), draft.runs) {
            self.refusal = Some(ErrorReply::by_rule(words));
            self.core.handle.notify(SessionEvent::Recheck);
            return Ok(RequestDisposition::More);
        }
        let wanted = self.decide(&view, database, &draft);
        Ok(RequestDisposition::Unit(wanted, view))
    }

    /// Answers a message that needs no server. Returns whether it was one.
    fn is_local(&mut self, request: Request, message: &[u8]) -> bool {
        let is_discarded = self.active.tail == BatchTail::Discarded;
        if is_discarded && request != Request::Sync {
            return true;
        }
        match request {
            Request::Sync => {
                self.active.tail = BatchTail::None;
                build::ready_for_query(self.core.answers(), TransactionStatus::Idle);
                true
            }
            // No request is in progress, and COPY data here belongs to a failed COPY.
            Request::Flush | Request::CopyData | Request::CopyEnd => true,
            Request::Close => {
                self.close_name(message);
                build::empty(self.core.answers(), b'3');
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

    fn draft(&mut self, bytes: &[u8]) -> Result<Draft, ExitReason> {
        let mut draft = Draft::default();
        let mut scanner = self.scanner;
        let mut at = 0;
        while !draft.is_whole() {
            let step = scanner.next(bytes.get(at..).unwrap_or_default());
            match step {
                Step::Message {
                    passed,
                    header,
                    request,
                    length,
                    is_whole,
                } => {
                    at += passed;
                    let message = bytes.get(at..at + length).unwrap_or_default();
                    self.add_message(&mut draft, header, request, message, is_whole);
                    at += length;
                }
                Step::Wait { .. } => break,
                Step::Invalid(fault) => return Err(ExitReason::Fatal(ErrorReply::protocol(fault))),
            }
        }
        Ok(draft)
    }

    /// Adds a message; of one that is too long only the beginning is present.
    pub(super) fn add_message(
        &mut self,
        draft: &mut Draft,
        header: Header,
        request: Request,
        message: &[u8],
        is_whole: bool,
    ) {
        draft.messages += 1;
        if is_whole || !matches!(request, Request::Query | Request::Parse) {
            return self.add(draft, header, request, message);
        }
        draft.add_unknown();
        draft.add_rules(self.rules(None));
        draft.runs = true;
        draft.reaches(match request {
            Request::Query => Extent::Whole,
            _ => Extent::Urgent,
        });
    }

    fn add(&mut self, draft: &mut Draft, header: Header, request: Request, message: &[u8]) {
        match request {
            Request::Query => {
                let analysis = self.read_query(text_of_query(message));
                draft.add(&analysis);
                draft.add_rules(self.rules(Some(text_of_query(message))));
                draft.runs = true;
                self.effects.read_ahead = Some(analysis);
                draft.reaches(Extent::Whole);
            }
            Request::Parse => match parse_parts(message) {
                Some(parts) => {
                    let text = message.get(parts.text).unwrap_or_default();
                    draft.add(&self.read(text));
                    draft.add_rules(self.rules(Some(text)));
                    draft.knows_unnamed |= !parts.statement.is_named();
                }
                None => draft.add_unknown(),
            },
            Request::Bind | Request::DescribeStatement => {
                draft.runs |= request == Request::Bind;
                self.add_named(draft, header, message);
            }
            Request::FunctionCall => {
                draft.add_unknown();
                draft.reaches(Extent::Whole);
            }
            Request::Execute => draft.executes = true,
            Request::Flush => draft.reaches(Extent::Urgent),
            Request::Sync | Request::Terminate => draft.reaches(Extent::Whole),
            _ => {}
        }
    }

    /// Adds the statement of a Bind or Describe.
    fn add_named(&mut self, draft: &mut Draft, header: Header, message: &[u8]) {
        let Parsed::Frame(found, _) = names(header, message) else {
            return draft.add_unknown();
        };
        let Some(name) = found.statement else { return };
        if !name.is_named() {
            // Unless the same batch has a Parse, an earlier one applies.
            if !std::mem::replace(&mut draft.knows_unnamed, true) {
                draft.add_rules(self.rules(self.unnamed.text()));
                match self.unnamed.meaning() {
                    Some(analysis) => draft.add(analysis),
                    None => draft.add_unknown(),
                }
            }
            return;
        }
        match self.statements.get(name.of(message)) {
            Some(statement) => {
                let statement = self.current(&Arc::clone(statement));
                draft.add(&statement.meaning);
                draft.add_rules(self.rules_of(&statement));
            }
            // Either this batch prepares it and it was added, or it does not exist.
            None if !draft.statements.is_empty() => {}
            None => draft.add_unknown(),
        }
    }

    fn decide(
        &mut self,
        view: &ServiceSnapshot,
        database: &DatabaseSnapshot,
        draft: &Draft,
    ) -> PlacementTarget {
        if !database.splits_reads() {
            self.active.access = Access::Unclassified;
            return PlacementTarget::Primary;
        }
        let is_bound = self.active.retries.destination != Destination::Any;
        if is_bound || !self.state.pins.is_empty() {
            // A replica could not run it, so that it may write; or the session is pinned to the
            // first connection that it gets.
            self.active.writes();
            return PlacementTarget::Primary;
        }
        let rules = self.active.rules.as_ref();
        let reading = ReadRequest {
            server_info: &self.core.service.server_info,
            token: &mut self.token,
            tried: &self.active.retries.tried,
            among: rules.and_then(AppliedRules::server_group),
            may_wait: false,
        };
        let found = reading.candidates(view, database);
        let mut decision = self.decision(database, draft, rules, found.availability());
        found.want_positions(&decision, &self.core.service.server_info);
        self.active.access = match decision.is_read && !draft.may_write {
            true => Access::Reads,
            false => Access::Writes,
        };
        let ruled = rules.and_then(AppliedRules::destination);
        let is_asked_for = draft.hint.is_some() || ruled.is_some();
        if draft.executes && !draft.is_whole() && !is_asked_for {
            // A later statement may write, and must not be separated from those already executed.
            decision.target = RouteTarget::Primary;
        }
        let key = self.account.pool_user.user_number.get();
        let has_room = |index| self.core.acquirer.has_room(view, index);
        found.place(decision.target, database, key, has_room)
    }

    pub(super) fn decision(
        &self,
        database: &DatabaseSnapshot,
        draft: &Draft,
        rules: Option<&AppliedRules>,
        availability: route::ServerAvailability,
    ) -> Decision {
        let active = route::RoutingUnit {
            statements: &draft.statements,
            hint: draft.hint.as_ref().map(|hint| database.resolve_hint(hint)),
            rule: rules.and_then(AppliedRules::destination),
        };
        route::decide(&active, &self.routed(), &database.split, &availability)
    }

    /// Returns the session's state for the router.
    fn routed(&self) -> route::SessionContext {
        route::SessionContext {
            defaults: self.state.transaction_defaults(),
            changed_catalog: self.account.has_unread_changes(self.changed_catalog_us),
            ..route::SessionContext::default()
        }
    }

    /// Checks the input of a session pinned to a replica, which must not write. Returns false if it
    /// is incomplete.
    pub(super) fn dispatch_at_replica(&mut self, bytes: &[u8]) -> Result<bool, ExitReason> {
        let is_between = |server: &ServerConnection| server.conversation.is_idle();
        let is_next =
            self.core.server.as_deref().is_some_and(is_between) && self.scanner.is_at_border();
        if !is_next || !self.core.acquirer.is_at_replica() || self.state.pins.is_empty() {
            return Ok(true);
        }
        self.effects.read_ahead = None;
        let draft = self.draft(bytes)?;
        let active = route::RoutingUnit {
            statements: &draft.statements,
            hint: None,
            rule: None,
        };
        if !route::is_beyond_replica(&active, &self.routed()) {
            return Ok(draft.is_ripe() || bytes.len() >= KEPT_LENGTH_MAX);
        }
        let entry = &error_catalog::REPLICA_SESSION_CANNOT_WRITE;
        let error_reply = ErrorReply::with(entry, &[&self.state.pins]);
        Err(ExitReason::Fatal(error_reply))
    }
}
