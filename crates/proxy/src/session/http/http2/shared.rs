//! State of a connection that its task and the tasks of its streams share.

use std::cell::{RefCell, RefMut};
use std::collections::BTreeMap;
use std::io;
use std::task::{Context, Waker};

use evenkeel_tls::ClientPolicy;
use evenkeel_wire::http::{Field, KnownName, may_be_trailer};
use evenkeel_wire::http2::{Connection, StreamId, write_trailers};

/// Bytes that wait for the socket up to which streams add further ones.
pub(super) const OUTPUT_MAX: usize = 64 * 1024;

/// A connection of HTTP/2, as its streams see it.
pub(in crate::session::http) struct Shared {
    state: RefCell<State>,
    /// `None`: the connection is not encrypted.
    policy: Option<ClientPolicy>,
    is_encrypted: bool,
}

/// State of a connection.
pub(super) struct State {
    pub(super) codec: Connection,
    /// Bytes for the client.
    pub(super) out: Vec<u8>,
    pub(super) streams: BTreeMap<StreamId, StreamState>,
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
    /// Bytes of the request's body that its task has not taken.
    pub(super) received: Vec<u8>,
    /// Bytes of a body of known length that its task has not taken.
    left: Option<u64>,
    pub(super) body: BodyEnd,
    /// Bytes of the response that wait for a window.
    pub(super) waiting: Vec<u8>,
    pub(super) response: ResponseEnd,
    waker: TaskWaker,
}

/// End of a request's body.
#[derive(Default)]
pub(super) enum BodyEnd {
    /// More may follow.
    #[default]
    Open,
    /// The end was received, with these lines of trailers.
    Ended(Vec<u8>),
    /// The stream or its connection ended before.
    Broken(&'static str),
}

/// End of a response.
#[derive(Default)]
pub(super) enum ResponseEnd {
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
            state: RefCell::new(State {
                codec,
                out,
                streams: BTreeMap::new(),
                last_served: None,
                waker: TaskWaker::default(),
            }),
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
    /// Registers the task of the connection.
    pub(super) fn watch(&mut self, context: &Context<'_>) {
        self.waker.watch(context);
    }

    /// Wakes the task of the connection, which sends what is there.
    pub(super) fn wake(&self) {
        self.waker.wake();
    }

    /// Returns a stream. Fails if it has ended before its task.
    pub(super) fn stream(&mut self, id: StreamId) -> io::Result<&mut StreamState> {
        let stream = self.streams.get_mut(&id);
        let stream = stream.ok_or(io::ErrorKind::ConnectionReset)?;
        match stream.body {
            BodyEnd::Broken(why) => Err(io::Error::new(io::ErrorKind::ConnectionReset, why)),
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

    /// Records the end of a request's body.
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
        let ends = matches!(stream.response, ResponseEnd::Waiting(None));
        let taken = (self.codec).send_data(id, &stream.waiting, ends, &mut self.out);
        stream.waiting.drain(..taken);
        if !stream.waiting.is_empty() {
            return;
        }
        if let ResponseEnd::Waiting(trailers) = &mut stream.response {
            if let Some(lines) = trailers.take() {
                end_with_trailers(&mut self.codec, id, &lines, &mut self.out);
            }
            stream.response = ResponseEnd::Sent;
        }
        stream.wake();
    }

    /// Appends bytes of a response, and its end. What no window takes waits.
    pub(super) fn send(&mut self, id: StreamId, bytes: &[u8], ends: bool) {
        let Some(stream) = self.streams.get_mut(&id) else {
            return;
        };
        if !matches!(stream.response, ResponseEnd::Open) {
            return;
        }
        let taken = match stream.waiting.is_empty() {
            true => self.codec.send_data(id, bytes, ends, &mut self.out),
            false => 0,
        };
        let rest = bytes.get(taken..).unwrap_or_default();
        stream.waiting.extend_from_slice(rest);
        if ends {
            stream.response = match stream.waiting.is_empty() {
                true => ResponseEnd::Sent,
                false => ResponseEnd::Waiting(None),
            };
        }
        self.wake();
    }

    /// Ends a response with these lines of trailers.
    pub(super) fn send_trailers(&mut self, id: StreamId, lines: Vec<u8>) {
        if lines.is_empty() {
            return self.send(id, &[], true);
        }
        let Some(stream) = self.streams.get_mut(&id) else {
            return;
        };
        stream.response = match stream.waiting.is_empty() {
            true => {
                end_with_trailers(&mut self.codec, id, &lines, &mut self.out);
                ResponseEnd::Sent
            }
            // A field block must be sent in the order in which blocks were encoded.
            false => ResponseEnd::Waiting(Some(lines)),
        };
        self.wake();
    }

    /// Removes a stream whose task has ended. A request or response that has not ended is cut.
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
