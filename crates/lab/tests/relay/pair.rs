//! A client and the server connection of its session, both controlled by the test.

use std::io::{ErrorKind, Read, Write};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::time::{Duration, Instant};

use socket2::Socket;

use crate::peer::{self, Kind, LIMIT, Listening};

/// Size of the pattern that payloads are taken from; it has no short cycle, so swapped bytes are
/// detected.
const PATTERN_BYTES: usize = 16 << 20;

/// A service with one server, for one run at a time.
pub(crate) struct Lane {
    listen: String,
    listening: Listening,
}

impl Lane {
    pub(crate) fn new(kind: Kind) -> Lane {
        // Both sides have the same kind of socket, so that every kind is tested on both.
        Lane {
            listen: peer::own_address(kind),
            listening: Listening::new(kind),
        }
    }

    pub(crate) fn service(&self) -> String {
        self.service_with("")
    }

    pub(crate) fn service_with(&self, more: &str) -> String {
        peer::named_service(&self.name(), &self.listen, &[&self.listening.address], more)
    }

    fn name(&self) -> String {
        let keep = |c: char| c.is_ascii_alphanumeric().then_some(c);
        let name: String = self.listen.chars().filter_map(keep).collect();
        name[name.len().saturating_sub(60)..].to_owned()
    }

    /// Opens a connection through the balancer, and returns the sockets of client and server.
    pub(crate) fn pair(&self) -> (Socket, Socket) {
        (self.client(), self.server())
    }

    pub(crate) fn client(&self) -> Socket {
        peer::connect(&self.listen)
    }

    /// Opens a pair whose client's kernel buffers few unread bytes.
    pub(crate) fn pair_with_little_room(&self) -> (Socket, Socket) {
        let client = peer::connect_with_room(&self.listen, 64 * 1024);
        (client, self.server())
    }

    /// Accepts the server connection for a client that waits for it.
    pub(crate) fn server(&self) -> Socket {
        self.listening.accept()
    }

    /// Accepts the connection that the balancer opens after the server reset the first one
    /// immediately.
    pub(crate) fn accept_now(&self) -> Option<Socket> {
        self.listening.socket.set_nonblocking(true).unwrap();
        let accepted = self.listening.socket.accept();
        self.listening.socket.set_nonblocking(false).unwrap();
        accepted.ok().map(|(socket, _)| socket)
    }

    /// Returns a pair after a request and an answer.
    pub(crate) fn talk(&self) -> (Socket, Socket) {
        let (client, server) = self.pair();
        peer::send(&client, b"SELECT 1");
        assert_eq!(peer::receive(&server, 8), b"SELECT 1");
        peer::send(&server, b"one");
        assert_eq!(peer::receive(&client, 3), b"one");
        (client, server)
    }
}

impl Drop for Lane {
    fn drop(&mut self) {
        // A killed balancer leaves its socket file.
        if let Some(file) = self.listen.strip_prefix("unix:") {
            let _ = std::fs::remove_file(file);
        }
    }
}

/// Returns `bytes` bytes that differ from those of another seed.
pub(crate) fn payload(seed: usize, bytes: usize) -> &'static [u8] {
    let start = seed * 7_919 % (PATTERN_BYTES - bytes);
    &pattern()[start..start + bytes]
}

fn pattern() -> &'static [u8] {
    static PATTERN: OnceLock<Vec<u8>> = OnceLock::new();
    PATTERN.get_or_init(|| {
        let mut state: u64 = 0x9E37_79B9_7F4A_7C15;
        let words = (0..PATTERN_BYTES / 8).flat_map(|_| {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            state.to_le_bytes()
        });
        words.collect()
    })
}

/// Sends the pattern repeatedly, and publishes the number of bytes sent.
pub(crate) fn send_counted(mut socket: &Socket, bytes: usize, sent: &AtomicUsize) {
    let mut at = 0;
    while at < bytes {
        let start = at % PATTERN_BYTES;
        let piece = (bytes - at).min(PATTERN_BYTES - start).min(64 * 1024);
        at += socket.write(&pattern()[start..start + piece]).unwrap();
        sent.store(at, SeqCst);
    }
}

/// Receives what `send_counted` sends, and compares every byte.
pub(crate) fn receive_checked(mut socket: &Socket, bytes: usize) {
    let mut buffer = vec![0; 256 * 1024];
    let mut at = 0;
    while at < bytes {
        let start = at % PATTERN_BYTES;
        let length = buffer.len().min(PATTERN_BYTES - start).min(bytes - at);
        let count = socket.read(&mut buffer[..length]).unwrap();
        assert!(count > 0, "the end after {at} of {bytes} bytes");
        assert!(
            buffer[..count] == pattern()[start..start + count],
            "other bytes near {at}"
        );
        at += count;
    }
}

/// Reads to the end, spread evenly over `time` if `bytes` bytes arrive.
pub(crate) fn read_slowly(mut socket: &Socket, bytes: usize, time: Duration) -> Vec<u8> {
    const PIECE_BYTES: usize = 8 * 1024;
    let pause = time / u32::try_from(bytes / PIECE_BYTES + 1).unwrap();
    let mut read = Vec::new();
    let mut piece = [0; PIECE_BYTES];
    loop {
        let count = socket.read(&mut piece).unwrap();
        if count == 0 {
            return read;
        }
        read.extend_from_slice(&piece[..count]);
        std::thread::park_timeout(pause);
    }
}

/// Waits until the sender makes no progress for a while, or has sent all bytes. Returns the number
/// of bytes sent.
pub(crate) fn wait_until_stalled(sent: &AtomicUsize, all: usize) -> usize {
    const STALL: Duration = Duration::from_millis(60);
    let (mut last, mut since) = (sent.load(SeqCst), Instant::now());
    let deadline = Instant::now() + LIMIT;
    while since.elapsed() < STALL || last == 0 {
        let now = sent.load(SeqCst);
        if now >= all {
            return now;
        }
        if now != last {
            (last, since) = (now, Instant::now());
        }
        assert!(Instant::now() < deadline, "the sender never stalls");
        std::thread::park_timeout(Duration::from_millis(2));
    }
    last
}

/// Result of a reader.
#[derive(Debug, Default)]
pub(crate) struct Seen {
    pub(crate) count: usize,
    pub(crate) end: bool,
    pub(crate) error: Option<ErrorKind>,
}

/// Reads until an end or an error; the bytes must be a prefix of `expected`.
pub(crate) fn read_against(mut socket: &Socket, expected: &[u8]) -> Seen {
    let mut buffer = vec![0; 64 * 1024];
    let mut seen = Seen::default();
    loop {
        match socket.read(&mut buffer) {
            Ok(0) => {
                seen.end = true;
                return seen;
            }
            Ok(count) => {
                let next = seen.count + count;
                assert!(
                    expected.get(seen.count..next) == Some(&buffer[..count]),
                    "other bytes than were sent near {}",
                    seen.count
                );
                seen.count = next;
            }
            Err(error) => {
                seen.error = Some(error.kind());
                return seen;
            }
        }
    }
}

/// Raises our own limit of descriptors to its maximum, and returns it.
pub(crate) fn raise_descriptor_limit() -> usize {
    let mut limit = libc::rlimit {
        rlim_cur: 0,
        rlim_max: 0,
    };
    #[expect(unsafe_code, reason = "limits have no wrapper in the standard library")]
    // SAFETY: `limit` lives through both calls.
    unsafe {
        libc::getrlimit(libc::RLIMIT_NOFILE, &raw mut limit);
        limit.rlim_cur = limit.rlim_max;
        libc::setrlimit(libc::RLIMIT_NOFILE, &raw const limit);
    }
    usize::try_from(limit.rlim_max).unwrap_or(usize::MAX)
}

/// Stops a process (SIGSTOP) until this is dropped.
pub(crate) struct Stopped(u32);

pub(crate) fn stop(pid: u32) -> Stopped {
    signal(pid, libc::SIGSTOP);
    peer::until("the stop", || evenkeel_lab::procfs::is_stopped(pid));
    Stopped(pid)
}

impl Drop for Stopped {
    fn drop(&mut self) {
        signal(self.0, libc::SIGCONT);
    }
}

fn signal(pid: u32, signal: i32) {
    #[expect(unsafe_code, reason = "kill has no wrapper in the standard library")]
    // SAFETY: kill takes no pointer; the process is our own balancer.
    unsafe {
        libc::kill(pid.cast_signed(), signal);
    }
}
