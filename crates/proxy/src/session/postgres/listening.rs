//! Serves LISTEN in transaction pooling: one shared connection per database listens for all
//! clients, so that a client that listens holds no server connection.
//!
//! A LISTEN that is alone in its transaction waits until the shared connection listens
//! ([`Stage::Listening`]), and is answered here. Any other LISTEN goes to the session's own
//! connection and pins the session.

mod connection;
mod hub;
mod mailbox;

use std::sync::Arc;
use std::task::{Context, Poll};

use evenkeel_policy::pins::{Pin, UnpinEvent};
use evenkeel_policy::route::StatementClass;
use evenkeel_sql::postgres::Discard;
use evenkeel_sql::postgres::{Channel, ChannelAction, ChannelCall, channel_call};
use evenkeel_sql::session_state::analysis::{EffectKind, TextAnalysis};
use evenkeel_wire::postgres::TransactionStatus;
use evenkeel_wire::postgres::conversation::{LocalReply, Request, RequestToken};
use evenkeel_wire::postgres::frame::Header;
use evenkeel_wire::stream_editor::StreamEditor;

pub(super) use self::hub::ListenHub;

use self::mailbox::{ListeningEnd, Mailbox};
use super::active_request::text_of_query;
use super::error_reply::ErrorReply;
use super::portals::portal_of;
use super::server::ServerConnection;
use super::{ExitReason, Session, Stage};
use crate::error_catalog;
use crate::service::rules::AppliedRules;

/// A Sync message.
const SYNC: &[u8] = b"S\0\0\0\x04";

/// Listening of one session by the shared connection.
pub(super) struct Listening {
    hub: Arc<ListenHub>,
    mailbox: Arc<Mailbox>,
    /// LISTEN being processed.
    asked: Asked,
    /// Listening that ends with the current transaction, if it commits.
    leaving: Leaving,
}

/// State of a LISTEN.
enum Asked {
    Nothing,
    /// The shared connection has not answered.
    Waiting(Wanted),
    Answered {
        wanted: Wanted,
        is_listening: bool,
    },
    /// The client's answer is due after earlier replies, and never after an error: then the session
    /// leaves these channels.
    Replied {
        token: RequestToken,
        joined: Vec<Box<[u8]>>,
    },
}

/// Channels of a LISTEN.
struct Wanted {
    channels: Arc<[Channel]>,
    /// Those that the session does not listen on yet.
    joins: Vec<Box<[u8]>>,
}

/// Channels that a session stops to listen on.
enum Leaving {
    Nothing,
    Channels(Vec<Box<[u8]>>),
    All,
}

impl Listening {
    fn new(hub: Arc<ListenHub>) -> Self {
        Self {
            hub,
            mailbox: Arc::default(),
            asked: Asked::Nothing,
            leaving: Leaving::Nothing,
        }
    }

    /// Returns whether the shared connection has answered the LISTEN on these channels.
    fn has_answer(&self, wanted: &[Channel]) -> bool {
        matches!(&self.asked, Asked::Answered { wanted: asked, .. } if *asked.channels == *wanted)
    }

    /// Takes the answer to the LISTEN on these channels, which the client gets with this token.
    /// Returns whether the shared connection listens.
    fn take_answer(&mut self, wanted: &[Channel], token: RequestToken) -> bool {
        if !self.has_answer(wanted) {
            return false;
        }
        match std::mem::replace(&mut self.asked, Asked::Nothing) {
            Asked::Answered {
                wanted,
                is_listening: true,
            } => {
                let joined = wanted.joins;
                self.asked = Asked::Replied { token, joined };
                true
            }
            _ => false,
        }
    }

    /// Records that the client gets the answer with this token.
    pub(super) fn replied(&mut self, token: RequestToken) {
        if matches!(&self.asked, Asked::Replied { token: one, .. } if *one == token) {
            self.asked = Asked::Nothing;
        }
    }

    /// Records that the server has skipped the request of the token.
    pub(super) fn skipped(&mut self, token: RequestToken) {
        if matches!(&self.asked, Asked::Replied { token: one, .. } if *one == token) {
            self.undo();
        }
    }

    /// Ends what a LISTEN has begun whose answer the client has not got, and never gets.
    pub(super) fn undo(&mut self) {
        let joined = match std::mem::replace(&mut self.asked, Asked::Nothing) {
            Asked::Answered { wanted, .. } => wanted.joins,
            Asked::Replied { joined, .. } => joined,
            asked => return self.asked = asked,
        };
        for channel in joined {
            self.hub.leave(&channel, &self.mailbox);
        }
    }

    /// Ends what a LISTEN has begun that was not executed when its turn came.
    pub(super) fn undo_unanswered(&mut self) {
        if matches!(self.asked, Asked::Answered { .. }) {
            self.undo();
        }
    }

    /// Polls for the answer to the LISTEN being processed.
    fn poll_answer(&mut self, context: &Context<'_>) -> Poll<()> {
        if !matches!(self.asked, Asked::Waiting(_)) {
            return Poll::Ready(());
        }
        self.mailbox.poll_answer(context).map(|is_listening| {
            if let Asked::Waiting(wanted) = std::mem::replace(&mut self.asked, Asked::Nothing) {
                self.asked = Asked::Answered {
                    wanted,
                    is_listening,
                };
            }
        })
    }

    /// Records what a completed statement does to the channels. Where a rollback may be partial,
    /// the session goes on to listen.
    pub(super) fn completed(&mut self, meaning: &TextAnalysis, statement: usize) {
        for effect in meaning.effects_of(statement) {
            match effect.kind {
                EffectKind::Release(UnpinEvent::UnlistenAll)
                | EffectKind::Discard(Discard::All) => self.leaving = Leaving::All,
                EffectKind::Rollback | EffectKind::RollbackTo(_) => {
                    self.leaving = Leaving::Nothing;
                }
                _ => {}
            }
        }
        let kind = meaning.statements.get(statement).map(|one| one.kind);
        if kind == Some(StatementClass::Routine) {
            self.leaving = Leaving::Nothing;
        }
    }

    /// Records that a statement has failed: its transaction does not commit.
    pub(super) fn failed(&mut self) {
        self.leaving = Leaving::Nothing;
    }

    /// Ends the listening that the transaction has ended.
    pub(super) fn committed(&mut self) {
        match std::mem::replace(&mut self.leaving, Leaving::Nothing) {
            Leaving::Nothing => {}
            Leaving::Channels(channels) => {
                for channel in channels {
                    self.hub.leave(&channel, &self.mailbox);
                }
            }
            Leaving::All => self.hub.leave_all(&self.mailbox),
        }
    }
}

impl Leaving {
    fn add(&mut self, channels: &[Channel]) {
        let names = channels.iter().map(|one| one.name.clone());
        match self {
            Leaving::All => {}
            Leaving::Channels(leaving) => leaving.extend(names),
            Leaving::Nothing => *self = Leaving::Channels(names.collect()),
        }
    }
}

impl Drop for Listening {
    fn drop(&mut self) {
        self.hub.leave_all(&self.mailbox);
    }
}

impl Session<'_> {
    /// Returns whether a message is a LISTEN that must wait for the shared connection. `bytes`
    /// begin with the message.
    pub(super) fn waits_to_listen(
        &mut self,
        header: Header,
        request: Request,
        bytes: &[u8],
    ) -> bool {
        let Some(channels) = self.channels_to_share(header, request, bytes) else {
            return false;
        };
        let listening = self.listening.as_deref();
        if listening.is_some_and(|listening| listening.has_answer(&channels)) {
            return false;
        }
        self.ask_to_listen(channels.into());
        true
    }

    /// Returns the channels of a LISTEN that the shared connection can serve.
    fn channels_to_share(
        &self,
        header: Header,
        request: Request,
        bytes: &[u8],
    ) -> Option<Vec<Channel>> {
        let length = header.frame_length();
        let server = self.core.server.as_deref()?;
        let call = match request {
            Request::Query if server.conversation.is_idle() => {
                self.channels_of(text_of_query(bytes.get(..length)?))?
            }
            Request::Execute if self.portals.has_channels() => {
                let portal = portal_of(header, bytes.get(..length)?);
                let is_alone = self.is_alone(bytes.get(length..)?, server);
                let call = self.portals.channel_call(portal)?;
                (is_alone && portal.is_empty()).then(|| call.clone())?
            }
            _ => return None,
        };
        let is_shared = call.action == ChannelAction::Listen && self.can_share_listening(server);
        is_shared.then_some(call.channels)
    }

    /// Returns whether an Execute is the only one of its batch, outside a transaction. `behind`
    /// begins after it.
    fn is_alone(&self, behind: &[u8], server: &ServerConnection) -> bool {
        let conversation = &server.conversation;
        behind.starts_with(SYNC)
            && conversation.status() == TransactionStatus::Idle
            && !conversation.is_ready_pending()
            && !conversation.awaits_sync()
            && self.active.executed_in != Some(self.segment)
    }

    fn is_rejected(&self, text: &[u8]) -> bool {
        let rules = self.rules(Some(text));
        rules.as_ref().and_then(AppliedRules::rejection).is_some()
    }

    /// Returns whether the shared connection receives the same notifications as the session's own
    /// would, and the session does not listen on its own.
    fn can_share_listening(&self, server: &ServerConnection) -> bool {
        let mut reported = server.reported.iter();
        let is_utf8 =
            reported.any(|(name, value)| **name == *b"server_encoding" && **value == *b"UTF8");
        self.core.acquirer.is_at_primary()
            && !self.core.keeps_connection()
            && !self.state.pins.has(Pin::Listen)
            && self.state.reported.is_utf8()
            && is_utf8
    }

    /// Asks the shared connection to listen, and opens it if there is none.
    fn ask_to_listen(&mut self, channels: Arc<[Channel]>) {
        let Some(server) = self.core.server.as_deref() else {
            return;
        };
        let pool_handle = &server.core.pool_handle;
        let listening = self.listening.get_or_insert_with(|| {
            let hub = self.protocol.hub(&self.account.pool_user.database);
            Box::new(Listening::new(hub))
        });
        let (hub, mailbox) = (&listening.hub, &listening.mailbox);
        let joins = hub.joins(&channels, mailbox);
        if let Some(generation) = hub.listen(&channels, pool_handle.server.id, mailbox) {
            let service = self.core.permit.service();
            connection::open(self.core.worker, service, hub, pool_handle, generation);
        }
        listening.asked = Asked::Waiting(Wanted { channels, joins });
        self.stage = Stage::Listening;
    }

    /// Answers a LISTEN in a Query if the shared connection listens, and an UNLISTEN if it is the
    /// only one that does. Returns whether it was answered.
    pub(super) fn query_channels(
        &mut self,
        flight: &mut StreamEditor<'_, '_>,
        message: &[u8],
    ) -> bool {
        let call = channel_call(text_of_query(message));
        call.is_some_and(|call| {
            let answer = LocalReply::Query(call.tag);
            self.execute_call(flight, &call, (answer, message.len()))
        })
    }

    /// Does the same for an Execute of a portal.
    pub(super) fn execute_channels(
        &mut self,
        flight: &mut StreamEditor<'_, '_>,
        portal: &[u8],
        length: usize,
    ) -> bool {
        let call = self.portals.channel_call(portal).cloned();
        call.is_some_and(|call| {
            let answer = LocalReply::Command(call.tag);
            self.execute_call(flight, &call, (answer, length))
        })
    }

    fn execute_call(
        &mut self,
        flight: &mut StreamEditor<'_, '_>,
        call: &ChannelCall,
        (answer, length): (LocalReply, usize),
    ) -> bool {
        let Some(listening) = self.listening.as_deref_mut() else {
            return false;
        };
        let token = RequestToken(self.effects.next());
        let is_answered = match call.action {
            ChannelAction::Listen => listening.take_answer(&call.channels, token),
            ChannelAction::Unlisten => {
                listening.leaving.add(&call.channels);
                let is_idle = |server: &ServerConnection| server.conversation.is_idle();
                let is_alone = self.core.server.as_deref().is_some_and(is_idle);
                let is_all = is_alone && !self.state.pins.has(Pin::Listen);
                if is_all {
                    listening.committed();
                }
                is_all
            }
        };
        let Some(server) = self.core.server.as_mut().filter(|_| is_answered) else {
            return false;
        };
        // After an error, the message is skipped like any other.
        let _ = server.conversation.add_local_reply(answer, token);
        flight.drop(length);
        true
    }

    /// Returns the channels of a statement, unless a rule rejects it.
    pub(super) fn channels_of(&self, text: &[u8]) -> Option<ChannelCall> {
        channel_call(text).filter(|_| !self.is_rejected(text))
    }

    /// Records that no transaction is open any more.
    pub(super) fn transaction_ended(&mut self) {
        if let Some(listening) = &mut self.listening {
            listening.committed();
        }
    }

    /// Receives an answer or notifications of the shared connection. Returns false if there are
    /// none, or they must wait. `is_client_ready`: the client has read what it was sent.
    pub(super) fn step_listening(
        &mut self,
        context: &Context<'_>,
        is_client_ready: bool,
    ) -> Result<bool, ExitReason> {
        let Some(listening) = self.listening.as_deref_mut() else {
            return Ok(false);
        };
        if matches!(self.stage, Stage::Listening) {
            let Poll::Ready(()) = listening.poll_answer(context) else {
                return Ok(false);
            };
            self.stage = Stage::Ready;
            self.continue_soon();
            return Ok(true);
        }
        let is_between = matches!(self.stage, Stage::Ready)
            && self
                .core
                .server
                .as_deref()
                .is_none_or(ServerConnection::is_idle);
        if !is_between || !is_client_ready {
            return Ok(false);
        }
        let out = &mut self.core.answers;
        let entry = match listening.mailbox.poll_notifications(out, context) {
            Poll::Ready(Ok(())) => return Ok(true),
            Poll::Ready(Err(ListeningEnd::Lost)) => &error_catalog::LISTENING_LOST,
            Poll::Ready(Err(ListeningEnd::Overflow)) => &error_catalog::NOTIFICATIONS_OVER_LIMIT,
            Poll::Pending => return Ok(false),
        };
        Err(ExitReason::Fatal(ErrorReply::new(entry)))
    }
}
