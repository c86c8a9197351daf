//! Proxy between the balancer and a server that ends a connection at an exact moment: after the
//! answer to a marked message.

use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::thread;
use std::time::Duration;

use evenkeel_wire::postgres::backend::SqlState;
use evenkeel_wire::postgres::build::{self, ErrorText};

/// Mark of the client messages whose answers are intercepted.
pub(crate) const MARK: &str = "meddle";

/// Part of the answer that arrives before the connection ends.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Interruption {
    /// The server's final error instead of ReadyForQuery.
    LastWord,
    /// No part of it.
    Silence,
    /// Instead of the answer, a warning that the server shuts down, as after a crash of another
    /// server process.
    Warning,
}

/// A proxy in front of a server.
#[derive(Clone)]
pub(crate) struct InterceptingProxy {
    pub(crate) address: SocketAddr,
    server: SocketAddr,
    /// Bytes at the end of the answer, followed by ReadyForQuery.
    end: &'static [u8],
    interruption: Interruption,
    /// True after the one interception.
    has_struck: Arc<AtomicBool>,
}

impl InterceptingProxy {
    /// Starts the proxy; `command` is the tag of the last command in the answer.
    pub(crate) fn start(
        server: SocketAddr,
        command: &'static str,
        interruption: Interruption,
    ) -> InterceptingProxy {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free address");
        let proxy = InterceptingProxy {
            address: listener.local_addr().expect("it has one"),
            server,
            end: command.as_bytes(),
            interruption,
            has_struck: Arc::default(),
        };
        let own = proxy.clone();
        thread::spawn(move || {
            for client in listener.incoming().flatten() {
                own.serve(client);
            }
        });
        proxy
    }

    fn serve(&self, client: TcpStream) {
        let Ok(server) = TcpStream::connect(self.server) else {
            return;
        };
        let clone = |stream: &TcpStream| stream.try_clone().expect("a descriptor");
        let marked = Arc::new(AtomicBool::new(false));
        let (from, to, own) = (clone(&client), clone(&server), self.clone());
        let mark = Arc::clone(&marked);
        thread::spawn(move || own.pass_requests(from, to, &mark));
        let own = self.clone();
        thread::spawn(move || own.pass_answers(server, client, &marked));
    }

    fn pass_requests(&self, mut from: TcpStream, mut to: TcpStream, marked: &AtomicBool) {
        let mut bytes = vec![0; 64 * 1024];
        while let Ok(length @ 1..) = from.read(&mut bytes) {
            if has(&bytes[..length], MARK.as_bytes()) && !self.has_struck.load(SeqCst) {
                marked.store(true, SeqCst);
            }
            if to.write_all(&bytes[..length]).is_err() {
                break;
            }
        }
        let _ = to.shutdown(Shutdown::Write);
    }

    /// Forwards answers; the answer to a marked message is kept until it is complete.
    fn pass_answers(&self, mut from: TcpStream, mut to: TcpStream, marked: &AtomicBool) {
        let mut bytes = vec![0; 64 * 1024];
        let mut kept = Vec::new();
        while let Ok(length @ 1..) = from.read(&mut bytes) {
            kept.extend_from_slice(&bytes[..length]);
            if !marked.load(SeqCst) {
                let sent = to.write_all(&std::mem::take(&mut kept));
                if sent.is_err() {
                    break;
                }
            } else if has(&kept, &[self.end, b"\0Z"].concat()) {
                self.interrupt(&kept, &mut to);
                break;
            }
        }
        let _ = to.shutdown(Shutdown::Both);
        let _ = from.shutdown(Shutdown::Both);
    }

    fn interrupt(&self, answer: &[u8], to: &mut TcpStream) {
        self.has_struck.store(true, SeqCst);
        if self.interruption == Interruption::Silence {
            return;
        }
        if self.interruption == Interruption::Warning {
            let _ = to.write_all(&warning());
            // The client reads it before the end arrives.
            thread::sleep(Duration::from_millis(100));
            return;
        }
        // ReadyForQuery takes six bytes.
        let mut out = answer[..answer.len() - 6].to_vec();
        let last_word = ErrorText {
            severity: "FATAL",
            sqlstate: SqlState(*b"57P01"),
            message: "terminating connection due to administrator command",
            detail: "",
            hint: "",
        };
        build::error(&mut out, &last_word);
        let _ = to.write_all(&out);
    }
}

/// Returns a NoticeResponse, which has the format of an ErrorResponse.
fn warning() -> Vec<u8> {
    let text = ErrorText {
        severity: "WARNING",
        sqlstate: SqlState(*b"57P02"),
        message: "terminating connection because of crash of another server process",
        detail: "",
        hint: "",
    };
    let mut out = Vec::new();
    build::error(&mut out, &text);
    out[0] = b'N';
    out
}

fn has(bytes: &[u8], what: &[u8]) -> bool {
    bytes.windows(what.len()).any(|window| window == what)
}
