//! One side of the pair, whose caller does as the plans of its exchanges say.

use std::collections::BTreeMap;

use evenkeel_wire::http2::hpack::{Encoder, Indexing};
use evenkeel_wire::http2::{Connection, ErrorCode, Event, Limits, Read, StreamId};

use super::plan::{Fate, Message, Plan, bytes_of};

/// Progress of the message that a side sends.
#[derive(Debug, Default)]
pub(crate) struct Sending {
    interim: usize,
    has_head: bool,
    bytes: usize,
    ended: bool,
    /// The windows did not let all through: a [`Event::WindowOpened`] must follow.
    blocked: bool,
}

/// Progress of the message that a side receives.
#[derive(Debug, Default)]
pub(crate) struct Receiving {
    interim: usize,
    has_head: bool,
    bytes: usize,
    held: usize,
    ended: bool,
}

#[derive(Debug)]
pub(crate) struct Exchange {
    plan: usize,
    sending: Sending,
    receiving: Receiving,
}

/// Number of exchanges that ended in each way.
#[derive(Debug, Default, Clone, Copy)]
pub(crate) struct Seen {
    pub(crate) completed: u64,
    pub(crate) early: u64,
    pub(crate) resets: u64,
    pub(crate) refused: u64,
    pub(crate) excluded: u64,
    pub(crate) interim: u64,
    pub(crate) trailers: u64,
    pub(crate) bytes: u64,
}

impl Seen {
    pub(crate) fn add(&mut self, more: Seen) {
        self.completed += more.completed;
        self.early += more.early;
        self.resets += more.resets;
        self.refused += more.refused;
        self.excluded += more.excluded;
        self.interim += more.interim;
        self.trailers += more.trailers;
        self.bytes += more.bytes;
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Role {
    Client,
    Server,
}

/// One side.
pub(crate) struct Side {
    role: Role,
    pub(crate) limits: Limits,
    pub(crate) connection: Connection,
    /// Bytes on their way to the other side.
    pub(crate) out: Vec<u8>,
    /// Received bytes that are not used.
    pub(crate) pending: Vec<u8>,
    pub(crate) exchanges: BTreeMap<StreamId, Exchange>,
    /// Plans that are to be sent again.
    pub(crate) again: Vec<usize>,
    pub(crate) seen: Seen,
}

impl Side {
    pub(crate) fn new(role: Role, limits: Limits) -> Self {
        let mut side = Side {
            role,
            limits,
            connection: match role {
                Role::Client => Connection::client(limits),
                Role::Server => Connection::server(limits),
            },
            out: Vec::new(),
            pending: Vec::new(),
            exchanges: BTreeMap::new(),
            again: Vec::new(),
            seen: Seen::default(),
        };
        side.connection.begin(&mut side.out);
        side
    }

    /// Opens a stream for a plan. Returns false if there is no room for one.
    pub(crate) fn open(&mut self, number: usize, plans: &[Plan]) -> bool {
        let plan = &plans[number];
        let message = &plan.request;
        let write = |encoder: &mut Encoder, out: &mut Vec<u8>| {
            let path = format!("/{number}");
            let first = [
                (":method", plan.method_text()),
                (":scheme", "https"),
                (":authority", "h"),
                (":path", &path),
            ];
            write_fields(encoder, out, &first, message);
            message.ends_with_head
        };
        let free = self.connection.free_streams();
        let before = self.out.len();
        let Some(stream) = self.connection.open(plan.method, &mut self.out, write) else {
            assert_eq!((free, self.out.len()), (0, before));
            return false;
        };
        assert_eq!(self.connection.free_streams(), free - 1);
        let exchange = Exchange {
            plan: number,
            sending: Sending {
                has_head: true,
                ended: message.ends_with_head,
                ..Sending::default()
            },
            receiving: Receiving::default(),
        };
        self.exchanges.insert(stream, exchange);
        true
    }

    /// Takes bytes of the other side.
    pub(crate) fn receive(&mut self, bytes: &[u8], now_ms: u64, plans: &[Plan]) {
        self.pending.extend(bytes);
        let pending = std::mem::take(&mut self.pending);
        let mut rest = &pending[..];
        loop {
            match self.connection.read(rest, now_ms, &mut self.out) {
                Read::Incomplete => break,
                Read::Used { length, event } => {
                    assert!(length > 0 || event.is_some());
                    if let Some(event) = event {
                        self.handle(event, rest, plans);
                    }
                    rest = &rest[length..];
                }
                Read::Failed(error) => panic!("{:?}: {error:?}", self.role),
            }
        }
        assert!(rest.len() < 24, "{} bytes are not used", rest.len());
        self.pending = rest.to_vec();
        self.assert_windows();
    }

    /// Asserts that the caller holds no more than the windows.
    fn assert_windows(&self) {
        let held = self.exchanges.values().map(|it| it.receiving.held);
        assert!(
            held.clone()
                .all(|it| it <= self.limits.stream_window as usize)
        );
        assert!(held.sum::<usize>() <= self.limits.connection_window as usize);
    }

    fn handle(&mut self, event: Event, bytes: &[u8], plans: &[Plan]) {
        match event {
            Event::Request { stream, end, .. } => self.begin(stream, end, plans),
            Event::Response { stream, end, .. } => self.take_head(stream, end, plans),
            Event::Data { stream, range, end } => self.take_data(stream, &bytes[range], end, plans),
            Event::Trailers { stream } => self.take_trailers(stream, plans),
            Event::Reset { stream, code, why } => {
                assert_eq!(why, None, "{:?}", self.role);
                self.take_reset(stream, code, plans);
            }
            Event::Unprocessed { stream } => {
                let exchange = self.exchange(stream);
                let (plan, receiving) = (exchange.plan, &exchange.receiving);
                assert!(!receiving.has_head && receiving.interim == 0);
                self.again.push(plan);
                match plans[plan].fate {
                    Fate::Refused => self.seen.refused += 1,
                    _ => self.seen.excluded += 1,
                }
                self.finish(stream);
            }
            Event::WindowOpened { stream } => {
                for (id, exchange) in &mut self.exchanges {
                    if stream.is_none_or(|stream| stream == *id) {
                        exchange.sending.blocked = false;
                    }
                }
            }
            Event::GoAway { code, .. } => assert_eq!(code, ErrorCode::NoError),
            Event::Refused { .. } => panic!("{event:?}"),
        }
    }

    /// Returns the exchange of an event: there are none for streams that are finished.
    fn exchange(&mut self, stream: StreamId) -> &mut Exchange {
        self.exchanges.get_mut(&stream).expect("an exchange")
    }

    fn begin(&mut self, stream: StreamId, end: bool, plans: &[Plan]) {
        let text = String::from_utf8(self.connection.head_text().to_vec()).expect("UTF-8");
        let number = text.split(['/', ' ']).nth(2).and_then(|it| it.parse().ok());
        let number: usize = number.expect("the number of a plan");
        let plan = &plans[number];
        assert!(text.starts_with(plan.method_text()) && text.contains(&plan.request.lines()));
        assert_eq!(end, plan.request.ends_with_head);
        if plan.fate == Fate::Refused && !self.again.contains(&number) {
            self.again.push(number);
            self.connection
                .reset(stream, ErrorCode::RefusedStream, &mut self.out);
            return self.connection.finished(stream, &mut self.out);
        }
        let receiving = Receiving {
            has_head: true,
            ended: end,
            ..Receiving::default()
        };
        let exchange = Exchange {
            plan: number,
            sending: Sending::default(),
            receiving,
        };
        assert!(self.exchanges.insert(stream, exchange).is_none());
    }

    fn take_head(&mut self, stream: StreamId, end: bool, plans: &[Plan]) {
        let text = String::from_utf8(self.connection.head_text().to_vec()).expect("UTF-8");
        let exchange = self.exchange(stream);
        let plan = &plans[exchange.plan];
        assert!(!exchange.receiving.has_head);
        if text.starts_with("HTTP/1.1 103 \r\n") {
            exchange.receiving.interim += 1;
            self.seen.interim += 1;
            return;
        }
        assert_eq!(exchange.receiving.interim, plan.interim);
        assert!(text.starts_with("HTTP/1.1 200 \r\n") && text.contains(&plan.response.lines()));
        exchange.receiving.has_head = true;
        if end {
            self.take_end(stream, plans, None);
        }
    }

    fn take_data(&mut self, stream: StreamId, bytes: &[u8], end: bool, plans: &[Plan]) {
        let role = self.role;
        let exchange = self.exchange(stream);
        let (plan, receiving) = (exchange.plan, &mut exchange.receiving);
        assert!(receiving.has_head && !receiving.ended);
        let expect = bytes_of(seed(plan, role), receiving.bytes, bytes.len());
        assert!(bytes == expect, "other bytes at {}", receiving.bytes);
        receiving.bytes += bytes.len();
        receiving.held += bytes.len();
        self.seen.bytes += bytes.len() as u64;
        if end {
            self.take_end(stream, plans, None);
        }
    }

    fn take_trailers(&mut self, stream: StreamId, plans: &[Plan]) {
        let mut fields = self.connection.trailers().fields();
        let field = fields.next().expect("a trailer");
        assert_eq!(field.name, b"x-sum");
        let value = String::from_utf8(field.value.to_vec()).expect("UTF-8");
        assert!(fields.next().is_none());
        drop(fields);
        self.seen.trailers += 1;
        self.take_end(stream, plans, Some(value));
    }

    /// Ends the received message, which must be whole.
    fn take_end(&mut self, stream: StreamId, plans: &[Plan], trailer: Option<String>) {
        let role = self.role;
        let exchange = self.exchange(stream);
        let message = received(role, &plans[exchange.plan]);
        assert_eq!(exchange.receiving.bytes, message.body);
        assert_eq!(trailer, message.trailer);
        exchange.receiving.ended = true;
        self.finish_if_done(stream, plans);
    }

    fn take_reset(&mut self, stream: StreamId, code: ErrorCode, plans: &[Plan]) {
        let role = self.role;
        let exchange = self.exchange(stream);
        let is_whole = exchange.receiving.ended;
        match (role, plans[exchange.plan].fate, code) {
            (Role::Client, Fate::Early, ErrorCode::NoError) if is_whole => self.seen.early += 1,
            (Role::Client, Fate::ServerResets(_), ErrorCode::InternalError)
            | (Role::Server, Fate::ClientResets(_), ErrorCode::Cancel) => self.seen.resets += 1,
            other => panic!("{other:?}"),
        }
        self.finish(stream);
    }

    /// Sends up to `most` bytes of an exchange, and what comes before and after them. Returns
    /// whether anything was sent.
    pub(crate) fn pump(&mut self, stream: StreamId, most: usize, plans: &[Plan]) -> bool {
        let role = self.role;
        let Some(exchange) = self.exchanges.get_mut(&stream) else {
            return false;
        };
        let plan = &plans[exchange.plan];
        let message = sent(role, plan);
        if let Some(code) = reset_code(role, plan.fate, exchange.sending.bytes) {
            self.connection.reset(stream, code, &mut self.out);
            self.finish(stream);
            return true;
        }
        let sending = &mut exchange.sending;
        if sending.ended || sending.blocked {
            return false;
        }
        let (connection, out) = (&mut self.connection, &mut self.out);
        if !sending.has_head {
            let is_interim = sending.interim < plan.interim;
            let status = if is_interim { "103" } else { "200" };
            let ends = !is_interim && message.ends_with_head;
            let is_sent = connection.send_head(stream, out, |encoder, out| {
                write_fields(encoder, out, &[(":status", status)], message);
                ends
            });
            assert!(is_sent);
            sending.interim += usize::from(is_interim);
            sending.has_head = !is_interim;
            sending.ended = ends;
            self.finish_if_done(stream, plans);
            return true;
        }
        let rest = message.body - sending.bytes;
        let count = most.min(rest);
        let is_last = count == rest && message.trailer.is_none();
        let bytes = bytes_of(seed(exchange.plan, role.other()), sending.bytes, count);
        let taken = connection.send_data(stream, &bytes, is_last, out);
        sending.bytes += taken;
        sending.blocked = taken < count;
        sending.ended = !sending.blocked && is_last;
        let mut has_sent = taken > 0 || sending.ended;
        if let Some(trailer) = &message.trailer
            && sending.bytes == message.body
        {
            let is_sent = connection.send_head(stream, out, |encoder, out| {
                encoder.begin(out);
                let value = trailer.as_bytes();
                encoder.field(out, b"x-sum", value, Indexing::Repeated);
                true
            });
            assert!(is_sent);
            sending.ended = true;
            has_sent = true;
        }
        self.finish_if_done(stream, plans);
        has_sent
    }

    /// Releases up to `most` bytes of an exchange. Returns whether there were any.
    pub(crate) fn release(&mut self, stream: StreamId, most: usize) -> bool {
        let Some(exchange) = self.exchanges.get_mut(&stream) else {
            return false;
        };
        let count = most.min(exchange.receiving.held);
        exchange.receiving.held -= count;
        self.connection.release(stream, count, &mut self.out);
        count > 0
    }

    /// Asserts that nothing is left.
    pub(crate) fn assert_rested(&mut self) {
        assert!(
            self.exchanges.is_empty(),
            "{:?}: {:?}",
            self.role,
            self.exchanges
        );
        assert_eq!(self.connection.open_streams(), 0);
        assert_eq!(self.connection.due_ms(), None);
        self.connection.rest();
        assert!(self.connection.head_text().is_empty());
    }

    fn finish_if_done(&mut self, stream: StreamId, plans: &[Plan]) {
        let role = self.role;
        let exchange = self.exchange(stream);
        let is_early = role == Role::Server && plans[exchange.plan].fate == Fate::Early;
        if !exchange.sending.ended || !(exchange.receiving.ended || is_early) {
            return;
        }
        self.seen.completed += u64::from(role == Role::Client);
        self.finish(stream);
    }

    fn finish(&mut self, stream: StreamId) {
        self.exchanges.remove(&stream).expect("an exchange");
        self.connection.finished(stream, &mut self.out);
        assert!(!self.connection.may_send(stream));
    }
}

impl Role {
    fn other(self) -> Role {
        match self {
            Role::Client => Role::Server,
            Role::Server => Role::Client,
        }
    }
}

/// Returns the seed of the body that a side receives.
pub(crate) fn seed(plan: usize, receiver: Role) -> usize {
    plan * 2 + usize::from(receiver == Role::Client)
}

fn sent(role: Role, plan: &Plan) -> &Message {
    match role {
        Role::Client => &plan.request,
        Role::Server => &plan.response,
    }
}

fn received(role: Role, plan: &Plan) -> &Message {
    sent(role.other(), plan)
}

/// Returns the code with which a side resets the stream now.
fn reset_code(role: Role, fate: Fate, bytes: usize) -> Option<ErrorCode> {
    match (role, fate) {
        (Role::Client, Fate::ClientResets(at)) if bytes >= at => Some(ErrorCode::Cancel),
        (Role::Server, Fate::ServerResets(at)) if bytes >= at => Some(ErrorCode::InternalError),
        _ => None,
    }
}

fn write_fields(
    encoder: &mut Encoder,
    out: &mut Vec<u8>,
    first: &[(&str, &str)],
    message: &Message,
) {
    encoder.begin(out);
    let fields = message.fields.iter();
    let fields = fields.map(|(name, value)| (&name[..], &value[..]));
    for (number, (name, value)) in first.iter().copied().chain(fields).enumerate() {
        let indexing = match (number + value.len()) % 4 {
            0 => Indexing::Incremental,
            1 => Indexing::Repeated,
            2 => Indexing::Without,
            _ => Indexing::Never,
        };
        encoder.field(out, name.as_bytes(), value.as_bytes(), indexing);
    }
}
