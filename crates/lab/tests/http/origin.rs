//! Scripted HTTP servers: they read requests strictly and record them.

use std::collections::BTreeMap;
use std::io::Read;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Mutex};

use socket2::Socket;

use crate::client::field_values;
use crate::peer::{Kind, Listening, Scripted, try_connect};

/// Request as a server sees it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Seen {
    /// Number of the connection, from 1.
    pub(crate) connection: usize,
    /// Request line and fields, without the empty line.
    pub(crate) head: String,
    pub(crate) body: Vec<u8>,
    /// Trailer section, with its lines' ends.
    pub(crate) trailers: String,
}

impl Seen {
    pub(crate) fn path(&self) -> &str {
        self.head.split(' ').nth(1).unwrap_or_default()
    }

    /// Returns the value of the only field of this name.
    #[track_caller]
    pub(crate) fn field(&self, name: &str) -> Option<String> {
        let values = field_values(&self.head, name);
        assert!(values.len() <= 1, "{name} is repeated: {}", self.head);
        values.into_iter().next()
    }
}

/// Reads requests from a connection.
pub(crate) struct Incoming<'a> {
    pub(crate) socket: &'a Socket,
    pub(crate) number: usize,
    bytes: Vec<u8>,
}

impl Incoming<'_> {
    /// Reads the next request; `None`: the connection ends. A part of a request is none.
    pub(crate) fn request(&mut self) -> Option<Seen> {
        let mut seen = self.head()?;
        self.body(&mut seen)?;
        Some(seen)
    }

    /// Reads the head of the next request.
    pub(crate) fn head(&mut self) -> Option<Seen> {
        let head = self.until(b"\r\n\r\n")?;
        Some(Seen {
            connection: self.number,
            head: String::from_utf8_lossy(&head[..head.len() - 4]).into_owned(),
            body: Vec::new(),
            trailers: String::new(),
        })
    }

    /// Reads the body that the head announces.
    pub(crate) fn body(&mut self, seen: &mut Seen) -> Option<()> {
        if let Some(length) = seen.field("Content-Length") {
            seen.body = self.take(length.parse().ok()?)?;
        } else if seen.field("Transfer-Encoding").is_some() {
            loop {
                let line = self.until(b"\r\n")?;
                let size = std::str::from_utf8(&line[..line.len() - 2]).ok()?;
                let size = usize::from_str_radix(size, 16).ok()?;
                if size == 0 {
                    break;
                }
                seen.body.extend(self.take(size)?);
                self.take(2)?;
            }
            loop {
                let line = self.until(b"\r\n")?;
                if line == b"\r\n" {
                    break;
                }
                seen.trailers.push_str(&String::from_utf8_lossy(&line));
            }
        }
        Some(())
    }

    /// Returns the bytes that were received and not taken.
    pub(crate) fn buffered(&self) -> &[u8] {
        &self.bytes
    }

    /// Takes this number of bytes.
    pub(crate) fn take(&mut self, count: usize) -> Option<Vec<u8>> {
        while self.bytes.len() < count {
            self.more()?;
        }
        Some(self.bytes.drain(..count).collect())
    }

    fn until(&mut self, mark: &[u8]) -> Option<Vec<u8>> {
        loop {
            let found = self.bytes.windows(mark.len()).position(|at| at == mark);
            if let Some(at) = found {
                return Some(self.bytes.drain(..at + mark.len()).collect());
            }
            self.more()?;
        }
    }

    fn more(&mut self) -> Option<()> {
        let mut bytes = [0; 16 * 1024];
        match self.socket.read(&mut bytes) {
            Ok(count) if count > 0 => self.bytes.extend_from_slice(&bytes[..count]),
            _ => return None,
        }
        Some(())
    }
}

/// Sends bytes to a peer that may have gone. Returns false then.
pub(crate) fn reply(mut socket: &Socket, bytes: impl AsRef<[u8]>) -> bool {
    use std::io::Write;
    socket.write_all(bytes.as_ref()).is_ok()
}

/// Returns a response of status 200 with a length.
pub(crate) fn ok(body: &str) -> String {
    let length = body.len();
    format!("HTTP/1.1 200 OK\r\nContent-Length: {length}\r\n\r\n{body}")
}

/// A running server, with the requests that it has seen completely.
pub(crate) struct Origin {
    pub(crate) server: Scripted,
    seen: Arc<Mutex<Vec<Seen>>>,
    /// Open connections by number.
    sockets: Arc<Mutex<BTreeMap<usize, Socket>>>,
}

impl Origin {
    /// Starts a server that answers each request; `None` closes the connection.
    pub(crate) fn new(respond: impl Fn(&Seen) -> Option<String> + Send + Sync + 'static) -> Origin {
        Origin::scripted(move |incoming, log| {
            while let Some(seen) = incoming.request() {
                log(&seen);
                let response = respond(&seen);
                if !response.is_some_and(|response| reply(incoming.socket, response)) {
                    return;
                }
            }
        })
    }

    /// Starts a server that answers each request with its path.
    pub(crate) fn echo() -> Origin {
        Origin::new(|seen| Some(ok(seen.path())))
    }

    /// Starts a server that answers each request with this name.
    pub(crate) fn named(name: &'static str) -> Origin {
        Origin::new(move |_| Some(ok(name)))
    }

    /// Starts a server with a script for each connection, which gives what it has seen to the
    /// function.
    pub(crate) fn scripted(
        script: impl Fn(&mut Incoming<'_>, &dyn Fn(&Seen)) + Send + Sync + 'static,
    ) -> Origin {
        Origin::on(Listening::new(Kind::V4), script)
    }

    /// Starts such a server on a socket that listens.
    pub(crate) fn on(
        listening: Listening,
        script: impl Fn(&mut Incoming<'_>, &dyn Fn(&Seen)) + Send + Sync + 'static,
    ) -> Origin {
        let seen: Arc<Mutex<Vec<Seen>>> = Arc::default();
        let sockets: Arc<Mutex<BTreeMap<usize, Socket>>> = Arc::default();
        let (log, count) = (Arc::clone(&seen), AtomicUsize::new(0));
        let open = Arc::clone(&sockets);
        let server = Scripted::on(listening, move |socket| {
            let number = count.fetch_add(1, SeqCst) + 1;
            let copy = socket.try_clone().unwrap();
            open.lock().unwrap().insert(number, copy);
            let mut incoming = Incoming {
                socket,
                number,
                bytes: Vec::new(),
            };
            script(&mut incoming, &|seen| {
                log.lock().unwrap().push(seen.clone())
            });
            open.lock().unwrap().remove(&number);
        });
        Origin {
            server,
            seen,
            sockets,
        }
    }

    pub(crate) fn address(&self) -> &str {
        self.server.address()
    }

    pub(crate) fn seen(&self) -> Vec<Seen> {
        self.seen.lock().unwrap().clone()
    }

    /// Returns the paths of the requests.
    pub(crate) fn paths(&self) -> Vec<String> {
        self.seen()
            .iter()
            .map(|seen| seen.path().to_owned())
            .collect()
    }

    /// Returns the only request.
    #[track_caller]
    pub(crate) fn only(&self) -> Seen {
        let mut seen = self.seen();
        assert_eq!(seen.len(), 1, "{seen:#?}");
        seen.remove(0)
    }

    /// Closes all connections, as at the end of the server's process.
    pub(crate) fn close_connections(&self) {
        for socket in self.sockets.lock().unwrap().values() {
            let _ = socket.shutdown(std::net::Shutdown::Both);
        }
    }

    /// Stops listening; connects are refused when this returns.
    pub(crate) fn stop_listening(&self) {
        self.server.stop();
        let address = self.address();
        crate::peer::until("the end of the listener", || try_connect(address).is_err());
    }
}
