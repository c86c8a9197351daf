//! A logged-in connection to a server, as it goes from session to session.

use std::cell::{Cell, RefCell};
use std::io;
use std::os::fd::OwnedFd;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Poll, Waker};

use compio::driver::SharedFd;
use evenkeel_policy::lending::Loan;
use evenkeel_wire::postgres::boundaries::{Boundaries, Event, Step};
use evenkeel_wire::postgres::build;
use evenkeel_wire::postgres::conversation::{
    Conversation, Delivery, Origin, Request, Sending, Settled, Token,
};

use super::account::{Pooled, Reports};
use super::complaint::Complaint;
use super::statements::Prepared;
use crate::clock;
use crate::engine::worker::Worker;
use crate::server::Server;
use crate::socket::Socket;
use crate::state::settings::{Carried, OnServer};
use crate::stream::Stream;

/// How long a cancel request may keep a connection from being lent.
const CANCEL_LIMIT_MS: u64 = 10_000;

/// One connection; lent as a whole.
pub(crate) struct ServerConnection {
    pub(crate) stream: Stream,
    pub(crate) conversation: Conversation,
    pub(crate) boundaries: Boundaries,
    /// The beginning of a message that is not whole yet.
    pub(crate) held: Vec<u8>,
    /// Where the rest goes of a message whose beginning was decided on.
    pub(crate) passing: Delivery,
    /// While it is lent.
    pub(crate) loan: Option<Loan>,
    pub(crate) pooled: Arc<Pooled>,
    /// How its query is cancelled.
    pub(crate) cancels: Rc<Cancelling>,
    pub(crate) prepared: Prepared,
    /// The statement that is the unnamed one now; zero: none of ours.
    pub(crate) unnamed: u64,
    /// Statements that its client can call by its own names, in SQL.
    pub(crate) given: Vec<Box<[u8]>>,
    /// What was set on it, and what it reports.
    pub(crate) settings: OnServer,
    /// What it reported in its login, as it spells it.
    pub(crate) reported: Reports,
    pub(crate) since_ms: u64,
}

/// Cancel requests that are on their way to a connection.
pub(crate) struct Cancelling {
    pub(crate) server: Arc<Server>,
    /// The server's process and secret.
    pub(crate) key: RefCell<Option<(u32, Box<[u8]>)>>,
    count: Cell<usize>,
    waker: RefCell<Option<Waker>>,
}

/// A connection on its way to another worker.
pub(crate) struct Parcel {
    socket: OwnedFd,
    conversation: Conversation,
    boundaries: Boundaries,
    pooled: Arc<Pooled>,
    key: Option<(u32, Box<[u8]>)>,
    prepared: Prepared,
    unnamed: u64,
    tls: Option<Box<crate::tls::Channel>>,
    settings: Carried,
    reported: Reports,
    since_ms: u64,
}

impl Cancelling {
    fn new(server: &Arc<Server>, key: Option<(u32, Box<[u8]>)>) -> Rc<Self> {
        Rc::new(Self {
            server: Arc::clone(server),
            key: RefCell::new(key),
            count: Cell::new(0),
            waker: RefCell::default(),
        })
    }

    pub(crate) fn get(&self) -> usize {
        self.count.get()
    }

    /// The process that serves it.
    pub(crate) fn process(&self) -> Option<u32> {
        self.key.borrow().as_ref().map(|(process, _)| *process)
    }

    pub(crate) fn begin(&self) {
        self.count.set(self.count.get() + 1);
    }

    pub(crate) fn end(&self) {
        self.count.set(self.count.get().saturating_sub(1));
        if let Some(waker) = self.waker.borrow_mut().take() {
            waker.wake();
        }
    }

    /// Waits until none is under way. False: it takes too long.
    pub(crate) async fn none_left(&self) -> bool {
        let all_over = std::future::poll_fn(|context| {
            if self.count.get() == 0 {
                return Poll::Ready(());
            }
            *self.waker.borrow_mut() = Some(context.waker().clone());
            Poll::Pending
        });
        let limit = std::time::Duration::from_millis(CANCEL_LIMIT_MS);
        compio::time::timeout(limit, all_over).await.is_ok()
    }
}

impl ServerConnection {
    /// Of a stream that is about to log in.
    pub(crate) fn new(worker: &Worker, stream: Stream, pooled: &Arc<Pooled>) -> Box<Self> {
        Box::new(Self {
            stream,
            conversation: Conversation::new(),
            boundaries: Boundaries::new(),
            held: Vec::new(),
            passing: Delivery::Forward,
            loan: None,
            pooled: Arc::clone(pooled),
            cancels: Cancelling::new(&pooled.server, None),
            prepared: Prepared::default(),
            unnamed: 0,
            given: Vec::new(),
            settings: OnServer::new([], worker.interner()),
            reported: Vec::new(),
            since_ms: clock::now_ms(),
        })
    }

    /// The server reports a setting of the login.
    pub(crate) fn report(&mut self, name: &[u8], value: &[u8]) {
        let known = self.reported.iter_mut().find(|(known, _)| **known == *name);
        match known {
            Some((_, known)) => *known = value.into(),
            None => self.reported.push((name.into(), value.into())),
        }
    }

    /// The login is over.
    pub(crate) fn begins(&mut self, worker: &Worker) {
        let reports = self.reported.iter();
        let reports = reports.map(|(name, value)| (&**name, &**value));
        self.settings = OnServer::new(reports, worker.interner());
    }

    /// Whether another client could have it, as far as its protocol tells.
    pub(crate) fn is_idle(&self) -> bool {
        self.conversation.is_idle()
            && self.held.is_empty()
            && self.boundaries.is_at_border()
            && self.stream.is_at_border()
            && self.stream.is_sent()
    }

    /// Whether it is idle but for bytes of ours that have not all gone out.
    pub(crate) fn is_idle_but_sending(&self) -> bool {
        self.conversation.is_idle() && !self.stream.is_sent()
    }

    /// Whether a client has seen a part of a message whose rest has not come.
    pub(crate) fn is_in_message(&self) -> bool {
        !self.boundaries.is_at_border() && self.passing == Delivery::Forward
    }

    /// For another worker. `None`: it has ended, or said something.
    pub(crate) async fn pack(self: Box<Self>, worker: &Worker) -> Option<Parcel> {
        let Self {
            stream,
            conversation,
            boundaries,
            pooled,
            cancels,
            prepared,
            unnamed,
            settings,
            reported,
            since_ms,
            ..
        } = *self;
        let (socket, tls) = stream.into_parts();
        let socket = socket.withdraw(worker).await?;
        Some(Parcel {
            socket,
            tls,
            conversation,
            boundaries,
            pooled,
            key: cancels.key.borrow().clone(),
            prepared,
            unnamed,
            settings: settings.export(),
            reported,
            since_ms,
        })
    }

    /// From another worker.
    pub(crate) fn unpack(worker: &Worker, parcel: Parcel) -> io::Result<Box<Self>> {
        let socket = SharedFd::new(socket2::Socket::from(parcel.socket));
        let socket = Socket::new(worker, socket)?;
        Ok(Box::new(Self {
            stream: Stream::with(socket, parcel.tls),
            conversation: parcel.conversation,
            boundaries: parcel.boundaries,
            held: Vec::new(),
            passing: Delivery::Forward,
            loan: None,
            cancels: Cancelling::new(&parcel.pooled.server, parcel.key),
            pooled: parcel.pooled,
            prepared: parcel.prepared,
            unnamed: parcel.unnamed,
            given: Vec::new(),
            settings: OnServer::import(&parcel.settings, worker.interner()),
            reported: parcel.reported,
            since_ms: parcel.since_ms,
        }))
    }

    /// A query of ours is added to what is to be sent; its replies reach nobody. False: nothing may
    /// be asked now.
    pub(crate) fn ask(&mut self, text: &[u8], token: Token, out: &mut Vec<u8>) -> bool {
        let sending = self.conversation.sent(Request::Query, Origin::Ours, token);
        self.unnamed = 0;
        if sending == Sending::Forward {
            build::query(out, text);
        }
        sending == Sending::Forward
    }

    /// Runs queries of ours to their end, for a connection that nobody uses.
    pub(crate) async fn run(&mut self, worker: &Worker, texts: &[&[u8]]) -> Result<(), Complaint> {
        let mut out = Vec::new();
        for text in texts {
            if !self.ask(text, Token::default(), &mut out) {
                return Err(self.broken("cannot be asked now"));
            }
        }
        let sent = self.stream.send(worker, &out).await;
        sent.map_err(|error| self.broken(error))?;
        let mut refused = None;
        while self.conversation.owed() > 0 {
            let mut bytes = std::mem::take(&mut self.held);
            match self.stream.receive(worker, &mut bytes).await {
                Ok(true) => {}
                Ok(false) => return Err(self.broken("closed the connection")),
                Err(error) => return Err(self.broken(error)),
            }
            let taken = self.hear(worker, &bytes, &mut refused)?;
            bytes.drain(..taken);
            self.held = bytes;
        }
        refused.map_or(Ok(()), Err)
    }

    /// What the server says to queries of ours; how many bytes of it were whole.
    fn hear(
        &mut self,
        worker: &Worker,
        bytes: &[u8],
        refused: &mut Option<Complaint>,
    ) -> Result<usize, Complaint> {
        let mut at = 0;
        loop {
            let rest = bytes.get(at..).unwrap_or_default();
            let (event, length) = match self.boundaries.next(rest) {
                Step::Event {
                    passed,
                    event,
                    length,
                } => (event, passed + length),
                Step::Wait { passed, .. } => return Ok(at + passed),
                Step::Invalid(fault) => return Err(self.broken(fault)),
            };
            at += length;
            while self.conversation.due().is_some() {}
            match &event {
                Event::ParameterStatus(Some((name, value))) => {
                    self.settings.hear(name, value, worker.interner());
                }
                Event::Error(report) => {
                    let text = String::from_utf8_lossy(report.text());
                    let complaint = Complaint::new(&report.sqlstate().0, text);
                    refused.get_or_insert(complaint);
                }
                _ => {}
            }
            match self.conversation.reply(&event).map(|reply| reply.settled) {
                Ok(Settled::Fatal(_)) | Err(_) => {
                    return Err(self.broken("ended the connection"));
                }
                Ok(_) => {}
            }
        }
    }

    fn broken(&self, why: impl std::fmt::Display) -> Complaint {
        let name = &self.pooled.server.name;
        Complaint::new(b"08006", format!("server {name}: {why}"))
    }

    /// Closes it with a word of goodbye, so that the server does not report a lost connection.
    pub(crate) fn part(mut self: Box<Self>, why: &str) {
        tracing::debug!(server = %self.pooled.server.name, why, "server connection closed");
        let mut goodbye = Vec::new();
        build::terminate(&mut goodbye);
        self.stream.say_goodbye(&goodbye);
    }
}
