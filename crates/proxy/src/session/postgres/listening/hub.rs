//! Holds the channels that the clients of one database listen on, over all workers. One server
//! connection, whose task is in [`connection`](super::connection), listens for all of them.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Waker};

use evenkeel_engine::panics::lock;
use evenkeel_sql::postgres::Channel;
use evenkeel_sql::session_state::settings::values::quoted;

use super::mailbox::Mailbox;

/// Channels of one database, and the sessions that listen on them.
#[derive(Debug, Default)]
pub(crate) struct ListenHub {
    state: Mutex<HubState>,
}

#[derive(Debug, Default)]
struct HubState {
    link: Link,
    /// Sessions that the shared connection listens for. No entry is empty.
    channels: HashMap<Box<[u8]>, Vec<Arc<Mailbox>>>,
    /// Requests that the shared connection has still to send, in this order.
    requests: VecDeque<Request>,
    /// Request that the server is processing.
    current: Option<Request>,
    /// Number of the shared connection, counted from the first one on.
    generation: u64,
    waker: Option<Waker>,
}

/// Shared connection of a hub.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
enum Link {
    /// There is none, and no task that opens one.
    #[default]
    Closed,
    /// A task has one to this server, or is opening it.
    Open { server: u64 },
}

/// A change of the channels that the shared connection listens on.
#[derive(Debug)]
enum Request {
    /// The session waits for the answer.
    Listen {
        channels: Arc<[Channel]>,
        mailbox: Arc<Mailbox>,
    },
    /// The session left before the server has answered.
    Abandoned(Arc<[Channel]>),
    /// No session listens on the channel any more, unless one has begun to since.
    Unlisten(Box<[u8]>),
}

/// Next step of the task of a shared connection.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum NextStep {
    /// The server is to execute this statement.
    Execute(Vec<u8>),
    /// The connection is no longer the shared one.
    Stop,
}

impl ListenHub {
    /// Requests that the shared connection to a server, the primary, listens on channels for a
    /// session, whose mailbox gets the answer. Returns the number of a new shared connection that
    /// the caller must open.
    pub(super) fn listen(
        &self,
        channels: &Arc<[Channel]>,
        server: u64,
        mailbox: &Arc<Mailbox>,
    ) -> Option<u64> {
        mailbox.begin();
        let mut state = lock(&self.state);
        let link = Link::Open { server };
        if state.link != link && state.link != Link::Closed {
            // The primary has changed.
            state.lose();
        }
        state.requests.push_back(Request::Listen {
            channels: Arc::clone(channels),
            mailbox: Arc::clone(mailbox),
        });
        state.wake();
        if state.link == link {
            return None;
        }
        state.link = link;
        state.generation += 1;
        Some(state.generation)
    }

    /// Returns the channels among these that the session does not listen on.
    pub(super) fn joins(&self, channels: &[Channel], mailbox: &Arc<Mailbox>) -> Vec<Box<[u8]>> {
        let state = lock(&self.state);
        let listens = |name: &[u8]| {
            let mailboxes = state.channels.get(name);
            mailboxes.is_some_and(|all| all.iter().any(|one| Arc::ptr_eq(one, mailbox)))
        };
        let names = channels.iter().map(|channel| &channel.name);
        names.filter(|name| !listens(name)).cloned().collect()
    }

    /// Ends the listening of a session on a channel.
    pub(super) fn leave(&self, channel: &[u8], mailbox: &Arc<Mailbox>) {
        lock(&self.state).leave(|one| one == channel, mailbox);
    }

    /// Ends the listening of a session on all channels.
    pub(super) fn leave_all(&self, mailbox: &Arc<Mailbox>) {
        let mut state = lock(&self.state);
        state.abandon(mailbox);
        state.leave(|_| true, mailbox);
    }

    /// Polls for the next step of the shared connection with this number.
    pub(super) fn poll_step(&self, generation: u64, context: &Context<'_>) -> Poll<NextStep> {
        let mut state = lock(&self.state);
        if !state.is_current(generation) {
            return Poll::Ready(NextStep::Stop);
        }
        while let Some(request) = state.requests.pop_front() {
            if let Some(text) = state.text_of(&request) {
                state.current = Some(request);
                return Poll::Ready(NextStep::Execute(text));
            }
        }
        match &mut state.waker {
            Some(waker) => waker.clone_from(context.waker()),
            waker => *waker = Some(context.waker().clone()),
        }
        Poll::Pending
    }

    /// Reports the end of the statement of the last step.
    pub(super) fn executed(&self, generation: u64, is_successful: bool) {
        let mut state = lock(&self.state);
        if !state.is_current(generation) {
            return;
        }
        match state.current.take() {
            Some(Request::Listen { channels, mailbox }) => {
                if is_successful {
                    channels.iter().for_each(|one| state.add(one, &mailbox));
                }
                mailbox.answer(is_successful);
            }
            Some(Request::Abandoned(channels)) => {
                let names = channels.iter().map(|one| one.name.clone());
                state.requests.extend(names.map(Request::Unlisten));
            }
            Some(Request::Unlisten(_)) | None => {}
        }
    }

    /// Passes a notification to the sessions that listen on its channel.
    pub(super) fn notify(&self, generation: u64, channel: &[u8], notification: &[u8]) {
        let state = lock(&self.state);
        let Some(mailboxes) = state
            .channels
            .get(channel)
            .filter(|_| state.is_current(generation))
        else {
            return;
        };
        let notification: Arc<[u8]> = notification.into();
        for mailbox in mailboxes {
            mailbox.notify(&notification);
        }
    }

    /// Returns whether the connection with this number is the shared one.
    pub(super) fn is_current(&self, generation: u64) -> bool {
        lock(&self.state).is_current(generation)
    }

    /// Gives up the shared connection with this number if no session needs it. Returns whether it
    /// must be closed.
    pub(super) fn close_unused(&self, generation: u64) -> bool {
        let mut state = lock(&self.state);
        if state.is_current(generation) && state.is_unused() {
            state.requests.clear();
            state.link = Link::Closed;
        }
        !state.is_current(generation)
    }

    /// Reports that the shared connection with this number was lost, or could not be opened.
    pub(super) fn lost(&self, generation: u64) {
        let mut state = lock(&self.state);
        if state.is_current(generation) {
            state.lose();
        }
    }
}

impl HubState {
    fn is_current(&self, generation: u64) -> bool {
        self.link != Link::Closed && self.generation == generation
    }

    /// Returns whether no session listens or is about to.
    fn is_unused(&self) -> bool {
        let listens = |request: &Request| matches!(request, Request::Listen { .. });
        self.channels.is_empty() && self.current.is_none() && !self.requests.iter().any(listens)
    }

    fn add(&mut self, channel: &Channel, mailbox: &Arc<Mailbox>) {
        let mailboxes = self.channels.entry(channel.name.clone()).or_default();
        if !mailboxes.iter().any(|one| Arc::ptr_eq(one, mailbox)) {
            mailboxes.push(Arc::clone(mailbox));
        }
    }

    /// Drops the requests of a session.
    fn abandon(&mut self, mailbox: &Arc<Mailbox>) {
        let is_its = |request: &Request| match request {
            Request::Listen { mailbox: one, .. } => Arc::ptr_eq(one, mailbox),
            Request::Abandoned(_) | Request::Unlisten(_) => false,
        };
        self.requests.retain(|request| !is_its(request));
        if let Some(Request::Listen { channels, .. }) = self.current.take_if(|one| is_its(one)) {
            self.current = Some(Request::Abandoned(channels));
        }
    }

    fn leave(&mut self, is_meant: impl Fn(&[u8]) -> bool, mailbox: &Arc<Mailbox>) {
        let requests = &mut self.requests;
        self.channels.retain(|channel, mailboxes| {
            if is_meant(channel) {
                mailboxes.retain(|one| !Arc::ptr_eq(one, mailbox));
            }
            if mailboxes.is_empty() {
                requests.push_back(Request::Unlisten(channel.clone()));
            }
            !mailboxes.is_empty()
        });
        self.wake();
    }

    /// Returns the statement for a request. `None`: nothing has to be done.
    fn text_of(&self, request: &Request) -> Option<Vec<u8>> {
        match request {
            Request::Listen { channels, .. } => {
                let statements = channels.iter();
                let statements = statements.map(|one| [b"LISTEN ", &*one.written, b";"].concat());
                Some(statements.collect::<Vec<_>>().concat())
            }
            Request::Unlisten(channel) if !self.channels.contains_key(channel) => {
                let mut text = b"UNLISTEN ".to_vec();
                quoted(&mut text, channel, b'"');
                Some(text)
            }
            Request::Unlisten(_) | Request::Abandoned(_) => None,
        }
    }

    /// Ends the shared connection: sessions that listen are notified, and those that wait get no
    /// connection to listen with.
    fn lose(&mut self) {
        self.link = Link::Closed;
        for mailbox in self.channels.drain().flat_map(|(_, mailboxes)| mailboxes) {
            mailbox.lose();
        }
        for request in self
            .current
            .take()
            .into_iter()
            .chain(self.requests.drain(..))
        {
            if let Request::Listen { mailbox, .. } = request {
                mailbox.answer(false);
            }
        }
        self.wake();
    }

    fn wake(&self) {
        if let Some(waker) = &self.waker {
            waker.wake_by_ref();
        }
    }
}

#[cfg(test)]
mod tests {
    use evenkeel_sql::postgres::channel_call;

    use super::super::mailbox::ListeningEnd;
    use super::*;

    const PRIMARY: u64 = 7;

    fn context() -> Context<'static> {
        Context::from_waker(Waker::noop())
    }

    /// Returns the statement that the connection with this number is to execute; empty: none.
    fn step(hub: &ListenHub, generation: u64) -> String {
        match hub.poll_step(generation, &context()) {
            Poll::Ready(NextStep::Execute(text)) => String::from_utf8(text).unwrap(),
            Poll::Ready(NextStep::Stop) => "stop".to_owned(),
            Poll::Pending => String::new(),
        }
    }

    fn listen(hub: &ListenHub, text: &str, mailbox: &Arc<Mailbox>) -> Option<u64> {
        let channels = channel_call(text.as_bytes()).unwrap().channels;
        hub.listen(&channels.into(), PRIMARY, mailbox)
    }

    fn received(mailbox: &Mailbox) -> Result<String, ListeningEnd> {
        let mut out = Vec::new();
        match mailbox.poll_notifications(&mut out, &context()) {
            Poll::Ready(Err(end)) => Err(end),
            _ => Ok(String::from_utf8(out).unwrap()),
        }
    }

    #[test]
    fn a_session_is_answered_and_gets_notifications_after_the_server_has_answered() {
        let (hub, one, other) = (ListenHub::default(), Arc::default(), Arc::default());
        assert_eq!(listen(&hub, "listen A", &one), Some(1));
        assert_eq!(listen(&hub, "listen \"a\"", &other), None);
        assert_eq!(step(&hub, 1), "LISTEN A;");
        hub.notify(1, b"a", b"early");
        assert_eq!(one.poll_answer(&context()), Poll::Pending);
        hub.executed(1, true);
        assert_eq!(one.poll_answer(&context()), Poll::Ready(true));
        hub.notify(1, b"a", b"first ");
        assert_eq!(step(&hub, 1), "LISTEN \"a\";");
        hub.executed(1, false);
        assert_eq!(other.poll_answer(&context()), Poll::Ready(false));
        hub.notify(1, b"a", b"second");
        hub.notify(1, b"b", b"third");
        assert_eq!(received(&one), Ok("first second".to_owned()));
        assert_eq!(received(&other), Ok(String::new()));
    }

    #[test]
    fn the_server_stops_to_listen_when_the_last_session_leaves() {
        let (hub, one, other) = (ListenHub::default(), Arc::default(), Arc::default());
        for mailbox in [&one, &other] {
            listen(
                &hub,
                "do $$begin listen a; listen \"B\"\"\"; end$$",
                mailbox,
            );
            assert_eq!(step(&hub, 1), "LISTEN a;LISTEN \"B\"\"\";");
            hub.executed(1, true);
        }
        hub.leave(b"B\"", &one);
        assert_eq!(step(&hub, 1), "");
        hub.leave(b"B\"", &other);
        assert_eq!(step(&hub, 1), "UNLISTEN \"B\"\"\"");
        hub.executed(1, true);
        hub.leave_all(&other);
        assert!(!hub.close_unused(1));
        hub.leave_all(&one);
        // A session that comes before the statement is sent gets the channel back.
        listen(&hub, "listen a", &one);
        assert_eq!(step(&hub, 1), "UNLISTEN \"a\"");
        hub.executed(1, true);
        assert_eq!(step(&hub, 1), "LISTEN a;");
        hub.leave_all(&one);
        hub.executed(1, true);
        assert_eq!(step(&hub, 1), "UNLISTEN \"a\"");
        hub.executed(1, true);
        assert!(hub.close_unused(1));
        assert_eq!(listen(&hub, "listen a", &one), Some(2));
    }

    #[test]
    fn a_lost_connection_ends_those_who_listen_and_answers_those_who_wait() {
        let (hub, one, other) = (ListenHub::default(), Arc::default(), Arc::default());
        listen(&hub, "listen a", &one);
        step(&hub, 1);
        hub.executed(1, true);
        listen(&hub, "listen a", &other);
        hub.lost(1);
        assert_eq!(received(&one), Err(ListeningEnd::Lost));
        assert_eq!(received(&other), Ok(String::new()));
        assert_eq!(other.poll_answer(&context()), Poll::Ready(false));
        assert_eq!(listen(&hub, "listen a", &other), Some(2));
        hub.lost(1);
        assert_eq!(
            (step(&hub, 1), step(&hub, 2)),
            ("stop".to_owned(), "LISTEN a;".to_owned())
        );
    }

    #[test]
    fn another_primary_gets_a_connection_of_its_own() {
        let (hub, one, other) = (ListenHub::default(), Arc::default(), Arc::default());
        listen(&hub, "listen a", &one);
        step(&hub, 1);
        hub.executed(1, true);
        let channels = channel_call(b"listen a").unwrap().channels;
        assert_eq!(hub.listen(&channels.into(), PRIMARY + 1, &other), Some(2));
        assert_eq!(received(&one), Err(ListeningEnd::Lost));
        assert_eq!(step(&hub, 2), "LISTEN a;");
        // The former connection answers late.
        hub.executed(1, true);
        assert_eq!(other.poll_answer(&context()), Poll::Pending);
        hub.executed(2, true);
        hub.notify(1, b"a", b"former");
        hub.notify(2, b"a", b"new");
        assert_eq!(received(&other), Ok("new".to_owned()));
    }
}
