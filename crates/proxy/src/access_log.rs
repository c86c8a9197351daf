//! Records requests for the access log, and hands them over in batches.
//!
//! Each worker has a batch of its own, so that a request takes no lock and wakes no thread. A
//! batch goes to the thread that writes the log when it is full, or with the next sweep. While that
//! thread is too slow, batches are dropped and their requests counted.

use std::cell::RefCell;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// Number of requests at which a batch is handed over.
const REQUESTS_MAX: usize = 256;

/// Length in bytes of the texts of a batch at which it is handed over.
const BYTES_MAX: usize = 64 * 1024;

/// Number of batches that may wait for the writer before further ones are dropped: about 20 MB.
const BATCHES_WAITING_MAX: usize = 256;

/// Number of texts of a request.
const TEXTS: usize = 12;

/// Access log of a service.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AccessLogSettings {
    /// Format of its lines.
    pub format: AccessLogFormat,
    /// True if query strings are replaced, in the target and in `Referer`.
    pub masks_query: bool,
}

/// Format of the lines.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AccessLogFormat {
    /// One JSON object per line.
    Json,
    /// The Combined Log Format of Apache's httpd.
    Combined,
}

/// End of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RequestEnd {
    /// The response was passed on completely, or a tunnel has ended.
    Complete,
    /// The client disconnected before.
    ClientLeft,
    /// The server connection ended in the middle of the response.
    ServerCut,
    /// A time limit has passed.
    TimedOut,
    /// The request violates the protocol or a limit.
    Refused,
    /// Evenkeel answered for another reason.
    Answered,
    /// Evenkeel ended the connection: an operator's command, a drain limit, the end of the process.
    Terminated,
}

/// Version that a client speaks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ClientVersion {
    /// HTTP/1.0.
    Http10,
    /// HTTP/1.1.
    Http11,
    /// HTTP/2.
    Http2,
}

/// Progress of a request at its end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RequestPhase {
    /// The head or the body of the request is received.
    Request,
    /// The request waits for a connection to a server.
    Wait,
    /// The request was sent, and the head of the response is awaited.
    FirstByte,
    /// The body of the response is passed on.
    Body,
    /// Both sides send, after a change of the protocol.
    Tunnel,
}

/// Properties of a finished request. Times are in microseconds.
#[derive(Debug, Clone, Copy)]
pub struct RequestFacts {
    /// Format of its line.
    pub format: AccessLogFormat,
    /// Version of the client's request.
    pub version: ClientVersion,
    /// Status of the response; 0: none was sent.
    pub status: u16,
    /// End of the request.
    pub end: RequestEnd,
    /// Progress at that end.
    pub phase: RequestPhase,
    /// Number of times that the request was sent again.
    pub retries: u32,
    /// Time of the end, of the engine's clock.
    pub ended_us: u64,
    /// Time from the end of the head to the last send of the request. `None`: it was never sent.
    pub waited_us: Option<u64>,
    /// Time from the end of the head to the first byte of the response. `None`: there was none.
    pub first_byte_us: Option<u64>,
    /// Time from the end of the head to the end of the request.
    pub total_us: u64,
    /// Bytes received of the request: head and body, without the framing of chunks.
    pub from_client: u64,
    /// Bytes sent to the client.
    pub to_client: u64,
    /// Bytes of these that follow the head of the response.
    pub body_to_client: u64,
}

/// Texts of a finished request. Empty: absent, or unknown.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct RequestTexts<'a> {
    /// Method.
    pub method: &'a [u8],
    /// Host and port that the request is for.
    pub host: &'a [u8],
    /// Path and query.
    pub target: &'a [u8],
    /// Field `Referer`.
    pub referer: &'a [u8],
    /// Field `User-Agent`.
    pub user_agent: &'a [u8],
    /// Field `X-Request-ID`.
    pub request_id: &'a [u8],
    /// Name of the service.
    pub service: &'a [u8],
    /// Name of the route.
    pub route: &'a [u8],
    /// Name of the user that the client has sent.
    pub user: &'a [u8],
    /// Address of the client. Empty on a Unix socket.
    pub client: &'a [u8],
    /// Address of the server.
    pub server: &'a [u8],
    /// Reason for any other end than a complete response.
    pub reason: &'a [u8],
}

/// Finished requests of one worker.
#[derive(Debug, Default)]
pub struct Batch {
    requests: Vec<(RequestFacts, [u32; TEXTS])>,
    /// Texts of the requests, one after another.
    bytes: Vec<u8>,
}

/// Batches on their way to the writer.
#[derive(Debug)]
pub(crate) struct AccessLogQueue {
    sender: flume::Sender<Batch>,
    receiver: flume::Receiver<Batch>,
    dropped: AtomicU64,
}

/// Batch of a worker, and the queue that it goes to.
#[derive(Default)]
pub(crate) struct AccessLog {
    batch: RefCell<Batch>,
    queue: RefCell<Option<Arc<AccessLogQueue>>>,
}

impl RequestEnd {
    /// Returns the word in the log.
    pub fn word(self) -> &'static str {
        match self {
            Self::Complete => "complete",
            Self::ClientLeft => "client left",
            Self::ServerCut => "server cut",
            Self::TimedOut => "timed out",
            Self::Refused => "refused",
            Self::Answered => "answered",
            Self::Terminated => "terminated",
        }
    }
}

impl RequestPhase {
    /// Returns the word in the log.
    pub fn word(self) -> &'static str {
        match self {
            Self::Request => "request",
            Self::Wait => "wait",
            Self::FirstByte => "first byte",
            Self::Body => "body",
            Self::Tunnel => "tunnel",
        }
    }
}

impl<'a> RequestTexts<'a> {
    fn to_array(self) -> [&'a [u8]; TEXTS] {
        [
            self.method,
            self.host,
            self.target,
            self.referer,
            self.user_agent,
            self.request_id,
            self.service,
            self.route,
            self.user,
            self.client,
            self.server,
            self.reason,
        ]
    }

    fn from_array(texts: [&'a [u8]; TEXTS]) -> Self {
        let [
            method,
            host,
            target,
            referer,
            user_agent,
            request_id,
            service,
            route,
            user,
            client,
            server,
            reason,
        ] = texts;
        Self {
            method,
            host,
            target,
            referer,
            user_agent,
            request_id,
            service,
            route,
            user,
            client,
            server,
            reason,
        }
    }
}

impl Batch {
    fn add(&mut self, facts: RequestFacts, texts: RequestTexts<'_>) {
        let lengths = texts.to_array().map(|text| {
            self.bytes.extend_from_slice(text);
            u32::try_from(text.len()).unwrap_or(0)
        });
        self.requests.push((facts, lengths));
    }

    fn is_full(&self) -> bool {
        self.requests.len() >= REQUESTS_MAX || self.bytes.len() >= BYTES_MAX
    }

    /// Returns the requests in the order of their ends.
    pub fn requests(&self) -> impl Iterator<Item = (&RequestFacts, RequestTexts<'_>)> {
        let mut rest = &self.bytes[..];
        self.requests.iter().map(move |(facts, lengths)| {
            let texts = lengths.map(|length| {
                let (text, after) = rest.split_at(rest.len().min(length as usize));
                rest = after;
                text
            });
            (facts, RequestTexts::from_array(texts))
        })
    }
}

impl AccessLogQueue {
    pub(crate) fn new() -> Self {
        let (sender, receiver) = flume::bounded(BATCHES_WAITING_MAX);
        Self {
            sender,
            receiver,
            dropped: AtomicU64::new(0),
        }
    }

    pub(crate) fn receiver(&self) -> flume::Receiver<Batch> {
        self.receiver.clone()
    }

    /// Returns the number of requests that were not logged because the writer was too slow.
    pub(crate) fn dropped(&self) -> u64 {
        self.dropped.load(Relaxed)
    }

    fn pass(&self, batch: Batch) {
        let requests = batch.requests.len() as u64;
        if self.sender.try_send(batch).is_err() {
            self.dropped.fetch_add(requests, Relaxed);
        }
    }
}

impl AccessLog {
    /// Adds a finished request.
    pub(crate) fn add(
        &self,
        queue: &Arc<AccessLogQueue>,
        facts: RequestFacts,
        texts: RequestTexts<'_>,
    ) {
        let mut batch = self.batch.borrow_mut();
        if batch.requests.capacity() == 0 {
            batch.requests.reserve_exact(REQUESTS_MAX);
            batch.bytes.reserve_exact(BYTES_MAX);
            let mut known = self.queue.borrow_mut();
            known.get_or_insert_with(|| Arc::clone(queue));
        }
        batch.add(facts, texts);
        if batch.is_full() {
            drop(batch);
            self.hand_over();
        }
    }

    /// Hands over what has been recorded.
    pub(crate) fn hand_over(&self) {
        let batch = std::mem::take(&mut *self.batch.borrow_mut());
        if let (Some(queue), false) = (&*self.queue.borrow(), batch.requests.is_empty()) {
            queue.pass(batch);
        }
    }
}

impl Drop for AccessLog {
    fn drop(&mut self) {
        self.hand_over();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn facts(status: u16) -> RequestFacts {
        RequestFacts {
            format: AccessLogFormat::Json,
            version: ClientVersion::Http11,
            status,
            end: RequestEnd::Complete,
            phase: RequestPhase::Body,
            retries: 0,
            ended_us: 0,
            waited_us: None,
            first_byte_us: None,
            total_us: 0,
            from_client: 0,
            to_client: 0,
            body_to_client: 0,
        }
    }

    fn texts(target: &[u8]) -> RequestTexts<'_> {
        RequestTexts {
            method: b"GET",
            target,
            reason: b"why",
            ..RequestTexts::default()
        }
    }

    #[test]
    fn a_batch_returns_each_request_with_its_own_texts() {
        let queue = Arc::new(AccessLogQueue::new());
        let log = AccessLog::default();
        log.add(&queue, facts(200), texts(b"/a"));
        log.add(&queue, facts(404), texts(b""));
        log.add(&queue, facts(500), texts(b"/ccc"));
        log.hand_over();
        let batch = queue.receiver().try_recv().unwrap();
        let seen = batch.requests().map(|(facts, of)| (facts.status, of));
        let seen: Vec<_> = seen.collect();
        let expect = [
            (200, texts(b"/a")),
            (404, texts(b"")),
            (500, texts(b"/ccc")),
        ];
        assert_eq!(seen, expect);
    }

    #[test]
    fn a_full_batch_is_handed_over_by_number_and_by_size() {
        let queue = Arc::new(AccessLogQueue::new());
        let log = AccessLog::default();
        for _ in 0..REQUESTS_MAX {
            assert!(queue.receiver().is_empty());
            log.add(&queue, facts(200), texts(b"/"));
        }
        assert_eq!(queue.receiver().len(), 1);
        log.add(&queue, facts(200), texts(&[b'a'; BYTES_MAX]));
        assert_eq!(queue.receiver().len(), 2);
        log.hand_over();
        assert_eq!(queue.receiver().len(), 2, "an empty batch is not passed");
    }

    #[test]
    fn batches_beyond_the_queue_are_dropped_and_their_requests_counted() {
        let queue = Arc::new(AccessLogQueue::new());
        let log = AccessLog::default();
        for _ in 0..BATCHES_WAITING_MAX + 2 {
            log.add(&queue, facts(200), texts(b"/"));
            log.add(&queue, facts(200), texts(b"/"));
            log.hand_over();
        }
        assert_eq!(queue.receiver().len(), BATCHES_WAITING_MAX);
        assert_eq!(queue.dropped(), 4);
    }

    #[test]
    fn a_worker_that_ends_hands_its_batch_over() {
        let queue = Arc::new(AccessLogQueue::new());
        let log = AccessLog::default();
        log.add(&queue, facts(200), texts(b"/"));
        drop(log);
        assert_eq!(queue.receiver().len(), 1);
    }
}
