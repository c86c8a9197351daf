//! State of a connection, to a client or a server, that its task and those of its streams share.

use std::cell::{RefCell, RefMut};
use std::collections::BTreeMap;
use std::io;
use std::task::{Context, Poll, Waker};

use evenkeel_tls::ClientPolicy;
use evenkeel_wire::http::{Field, KnownName, may_be_trailer};
use evenkeel_wire::http2::{Connection, StreamId, write_trailers};

/// Bytes that wait for the socket up to which streams add further ones.
pub(super) const OUTPUT_MAX: usize = 64 * 1024;

/// A connection of a client, as its streams see it.
pub(in crate::session::http) struct Shared {
    state: RefCell<State>,
    /// `None`: the connection is not encrypted.
    policy: Option<ClientPolicy>,
    is_encrypted: bool,
}

/// State of a connection.
pub(super) struct State {
    pub(super) codec: Connection,
    /// Bytes for the peer.
    pub(super) out: Vec<u8>,
    pub(super) streams: BTreeMap<StreamId, StreamState>,
    /// Streams to a server of which no byte was handed to the socket.
    unsent: Vec<StreamId>,
    /// The stream that was the last to send after a window had opened.
    last_served: Option<StreamId>,
    waker: TaskWaker,
}

/// Way to wake a task, once it has been polled.
#[derive(Default)]
struct TaskWaker(Option<Waker>);

/// State of a stream, until its task has ended.
#[derive(Default)]
pub(super) struct StreamState {
    /// Text of heads of a response that the task has not taken.
    pub(super) head: Vec<u8>,
    /// Bytes of the peer's body that the task has not taken.
    pub(super) received: Vec<u8>,
    /// Bytes of a body of known length that the task has not taken.
    left: Option<u64>,
    pub(super) body: BodyEnd,
    /// Bytes of the own body that wait for a window.
    pub(super) waiting: Vec<u8>,
    pub(super) sent: SentEnd,
    waker: TaskWaker,
}

/// End of the peer's body.
#[derive(Default)]
pub(super) enum BodyEnd {
    /// More may follow.
    #[default]
    Open,
    /// The end was received, with these lines of trailers.
    Ended(Vec<u8>),
    /// The stream or its connection ended before.
    Broken(&'static str),
    /// The server has not worked on the request, which may be sent again.
    Unprocessed,
    /// The server has canceled the request before the response was complete.
    Canceled,
}

/// End of the own message.
#[derive(Default)]
pub(super) enum SentEnd {
    #[default]
    Open,
    /// All bytes were handed over; the last ones wait, then these lines of trailers.
    Waiting(Option<Vec<u8>>),
    /// The end was sent.
    Sent,
}

impl Shared {
    pub(super) fn new(
        codec: Connection,
        out: Vec<u8>,
        (is_encrypted, policy): (bool, Option<ClientPolicy>),
    ) -> Self {
        Self {
            state: RefCell::new(State::new(codec, out)),
            policy,
            is_encrypted,
        }
    }

    /// Returns whether the connection is encrypted.
    pub(in crate::session::http) fn is_encrypted(&self) -> bool {
        self.is_encrypted
    }

    /// Returns the policy of client certificates under which the connection was accepted.
    pub(in crate::session::http) fn client_policy(&self) -> Option<&ClientPolicy> {
        self.policy.as_ref()
    }

    /// Returns the state. Borrow it within one function, which calls no foreign code.
    pub(super) fn state(&self) -> RefMut<'_, State> {
        self.state.borrow_mut()
    }
}

impl State {
    /// Creates the state of a connection without streams; `out` are the first bytes for the peer.
    pub(super) fn new(codec: Connection, out: Vec<u8>) -> Self {
        Self {
            codec,
            out,
            streams: BTreeMap::new(),
            unsent: Vec::new(),
            last_served: None,
            waker: TaskWaker::default(),
        }
    }

    /// Registers the task of the connection.
    pub(super) fn watch(&mut self, context: &Context<'_>) {
        self.waker.watch(context);
    }

    /// Wakes the task of the connection, which sends what is there.
    pub(super) fn wake(&self) {
        self.waker.wake();
    }

    /// Polls until more bytes may be sent on a stream: none wait for a window, and few for the
    /// socket.
    pub(super) fn poll_sent(
        &mut self,
        id: StreamId,
        context: &mut Context<'_>,
    ) -> Poll<io::Result<()>> {
        let is_full = self.out.len() >= OUTPUT_MAX;
        let stream = self.stream(id)?;
        let is_sent = stream.waiting.is_empty() && !is_full;
        match is_sent || matches!(stream.sent, SentEnd::Sent) {
            true => Poll::Ready(Ok(())),
            false => {
                stream.watch(context);
                Poll::Pending
            }
        }
    }

    /// Ends the own message of a stream, and polls until its bytes wait for no window.
    pub(super) fn poll_end(
        &mut self,
        id: StreamId,
        context: &mut Context<'_>,
    ) -> Poll<io::Result<()>> {
        self.send(id, &[], true);
        let stream = self.stream(id)?;
        match matches!(stream.sent, SentEnd::Sent) {
            true => Poll::Ready(Ok(())),
            false => {
                stream.watch(context);
                Poll::Pending
            }
        }
    }

    /// Returns a stream. Fails if it has ended before its task.
    pub(super) fn stream(&mut self, id: StreamId) -> io::Result<&mut StreamState> {
        let stream = self.streams.get_mut(&id);
        let stream = stream.ok_or(io::ErrorKind::ConnectionReset)?;
        match stream.body {
            BodyEnd::Broken(why) => Err(io::Error::new(io::ErrorKind::ConnectionReset, why)),
            BodyEnd::Unprocessed => {
                let why = "the server has not worked on the request";
                Err(io::Error::new(io::ErrorKind::ConnectionRefused, why))
            }
            BodyEnd::Canceled => {
                let why = "the server has canceled the request";
                Err(io::Error::new(io::ErrorKind::ConnectionReset, why))
            }
            BodyEnd::Open | BodyEnd::Ended(_) => Ok(stream),
        }
    }

    /// Adds received bytes to a stream.
    pub(super) fn receive(&mut self, id: StreamId, bytes: &[u8]) {
        match self.streams.get_mut(&id) {
            Some(stream) => {
                stream.received.extend_from_slice(bytes);
                stream.wake();
            }
            // The stream has answered already, and its task has ended.
            None => self.codec.release(id, bytes.len(), &mut self.out),
        }
    }

    /// Adds a stream to a server, whose head was written.
    pub(super) fn open(&mut self, id: StreamId, stream: StreamState) {
        self.streams.insert(id, stream);
        self.unsent.push(id);
        self.wake();
    }

    /// Takes the bytes for the peer; `next` is memory for later ones.
    pub(super) fn take_output(&mut self, next: Vec<u8>) -> Vec<u8> {
        self.unsent.clear();
        std::mem::replace(&mut self.out, next)
    }

    /// Records that the connection to a server has ended.
    pub(super) fn end_by_server(&mut self, why: &'static str) {
        for id in std::mem::take(&mut self.unsent) {
            self.end_body(id, BodyEnd::Unprocessed);
        }
        let open: Vec<StreamId> = self.streams.keys().copied().collect();
        for id in open {
            self.reset_by_server(id, why);
        }
    }

    /// Adds the head of a response, whose body perhaps has a known length. `is_end`: nothing
    /// follows it.
    pub(super) fn receive_head(&mut self, id: StreamId, length: Option<u64>, is_end: bool) {
        let Some(stream) = self.streams.get_mut(&id) else {
            return;
        };
        stream.head.extend_from_slice(self.codec.head_text());
        stream.left = length;
        if is_end {
            stream.body = BodyEnd::Ended(Vec::new());
        }
        stream.wake();
    }

    /// Records that the server has reset a stream. A response that is complete stays so: the server
    /// does not need the rest of the request (RFC 9113 §8.1).
    pub(super) fn reset_by_server(&mut self, id: StreamId, why: &'static str) {
        let Some(stream) = self.streams.get_mut(&id) else {
            return;
        };
        stream.waiting.clear();
        stream.sent = SentEnd::Sent;
        if matches!(stream.body, BodyEnd::Open) {
            stream.body = BodyEnd::Broken(why);
        }
        stream.wake();
    }

    /// Records that the server has canceled a request, unless its response is complete.
    pub(super) fn cancel_by_server(&mut self, id: StreamId) {
        let stream = self.streams.get_mut(&id);
        if let Some(stream) = stream
            && matches!(stream.body, BodyEnd::Open)
        {
            stream.body = BodyEnd::Canceled;
        }
        self.reset_by_server(id, "canceled");
    }

    /// Records the end of the peer's body.
    pub(super) fn end_body(&mut self, id: StreamId, end: BodyEnd) {
        if let Some(stream) = self.streams.get_mut(&id) {
            stream.body = end;
            stream.wake();
        }
    }

    /// Ends all streams, whose connection has ended.
    pub(super) fn break_all(&mut self, why: &'static str) {
        for stream in self.streams.values_mut() {
            stream.body = BodyEnd::Broken(why);
            stream.wake();
        }
    }

    /// Sends what waits for a window: of one stream, or of all in turn.
    pub(super) fn window_opened(&mut self, id: Option<StreamId>) {
        if let Some(id) = id {
            self.send_waiting(id);
            return;
        }
        let after = self.last_served;
        let is_waiting =
            |(id, stream): (&StreamId, &StreamState)| (!stream.waiting.is_empty()).then_some(*id);
        let all = self.streams.iter().filter_map(is_waiting);
        let (before, next): (Vec<StreamId>, Vec<StreamId>) = all.partition(|id| Some(*id) <= after);
        for id in next.into_iter().chain(before) {
            self.send_waiting(id);
            self.last_served = Some(id);
        }
    }

    /// Sends bytes of a stream that wait, as far as the windows allow.
    fn send_waiting(&mut self, id: StreamId) {
        let Some(stream) = self.streams.get_mut(&id) else {
            return;
        };
        let ends = matches!(stream.sent, SentEnd::Waiting(None));
        let taken = (self.codec).send_data(id, &stream.waiting, ends, &mut self.out);
        stream.waiting.drain(..taken);
        if !stream.waiting.is_empty() {
            return;
        }
        if let SentEnd::Waiting(trailers) = &mut stream.sent {
            if let Some(lines) = trailers.take() {
                end_with_trailers(&mut self.codec, id, &lines, &mut self.out);
            }
            stream.sent = SentEnd::Sent;
        }
        stream.wake();
    }

    /// Appends bytes of a body, and its end. What no window takes waits.
    pub(super) fn send(&mut self, id: StreamId, bytes: &[u8], ends: bool) {
        let Some(stream) = self.streams.get_mut(&id) else {
            return;
        };
        if !matches!(stream.sent, SentEnd::Open) {
            return;
        }
        let taken = match stream.waiting.is_empty() {
            true => self.codec.send_data(id, bytes, ends, &mut self.out),
            false => 0,
        };
        let rest = bytes.get(taken..).unwrap_or_default();
        stream.waiting.extend_from_slice(rest);
        if ends {
            stream.sent = match stream.waiting.is_empty() {
                true => SentEnd::Sent,
                false => SentEnd::Waiting(None),
            };
        }
        self.wake();
    }

    /// Ends a message with these lines of trailers.
    pub(super) fn send_trailers(&mut self, id: StreamId, lines: Vec<u8>) {
        if lines.is_empty() {
            return self.send(id, &[], true);
        }
        let Some(stream) = self.streams.get_mut(&id) else {
            return;
        };
        stream.sent = match stream.waiting.is_empty() {
            true => {
                end_with_trailers(&mut self.codec, id, &lines, &mut self.out);
                SentEnd::Sent
            }
            // A field block must be sent in the order in which blocks were encoded.
            false => SentEnd::Waiting(Some(lines)),
        };
        self.wake();
    }

    /// Removes a stream whose task has ended. A message that has not ended is cut.
    pub(super) fn remove(&mut self, id: StreamId) {
        self.streams.remove(&id);
        self.codec.finished(id, &mut self.out);
        self.wake();
    }

    /// Wakes the streams that wait for the socket.
    pub(super) fn wake_streams(&self) {
        for stream in self.streams.values() {
            if stream.waiting.is_empty() {
                stream.wake();
            }
        }
    }
}

impl StreamState {
    /// Creates the state of a request, perhaps without a body. `length` is that of its body, if it
    /// is known.
    pub(super) fn new(is_ended: bool, length: Option<u64>) -> Self {
        Self {
            left: length,
            body: match is_ended {
                true => BodyEnd::Ended(Vec::new()),
                false => BodyEnd::Open,
            },
            ..Self::default()
        }
    }

    /// Returns the number of received bytes that the task may take. The last byte of a body of
    /// known length waits for END_STREAM: before it, the request may still prove to be malformed,
    /// and a server of HTTP/1.1 would see a complete one.
    pub(super) fn available(&self) -> usize {
        let length = self.received.len();
        let is_last = matches!(self.body, BodyEnd::Open) && self.left == Some(length as u64);
        length.saturating_sub(usize::from(is_last))
    }

    /// Takes the bytes that are available; `spare` is memory for later ones.
    pub(super) fn take(&mut self, mut spare: Vec<u8>) -> Vec<u8> {
        let available = self.available();
        spare.extend_from_slice(self.received.get(available..).unwrap_or_default());
        let mut bytes = std::mem::replace(&mut self.received, spare);
        bytes.truncate(available);
        self.left = self.left.map(|left| left.saturating_sub(available as u64));
        bytes
    }

    /// Registers the task of the stream.
    pub(super) fn watch(&mut self, context: &Context<'_>) {
        self.waker.watch(context);
    }

    fn wake(&self) {
        self.waker.wake();
    }
}

impl TaskWaker {
    fn watch(&mut self, context: &Context<'_>) {
        match &mut self.0 {
            Some(waker) => waker.clone_from(context.waker()),
            waker => *waker = Some(context.waker().clone()),
        }
    }

    fn wake(&self) {
        if let Some(waker) = &self.0 {
            waker.wake_by_ref();
        }
    }
}

fn end_with_trailers(codec: &mut Connection, id: StreamId, lines: &[u8], out: &mut Vec<u8>) {
    let fields = fields_of(lines).map(|field| (field.name, field.value));
    codec.send_head(id, out, |encoder, out| {
        // Only lines that may be trailers were kept.
        write_trailers(out, encoder, fields)
    });
}

/// Returns the fields of lines that were written by [`add_line`].
pub(super) fn fields_of(lines: &[u8]) -> impl Iterator<Item = Field<'_>> {
    lines.split(|byte| *byte == b'\n').filter_map(|line| {
        let line = line.strip_suffix(b"\r")?;
        let at = line.windows(2).position(|two| two == b": ")?;
        Some(Field {
            known: KnownName::of(&line[..at]),
            name: &line[..at],
            value: &line[at + 2..],
        })
    })
}

/// Appends a field as a line, if it may be a trailer.
pub(super) fn add_line(lines: &mut Vec<u8>, field: Field<'_>) {
    if !may_be_trailer(field.name) {
        return;
    }
    for part in [field.name, b": ", field.value, b"\r\n"] {
        lines.extend_from_slice(part);
    }
}
