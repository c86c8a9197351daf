//! Provides a server in a thread that handles every connection alike and counts them.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::thread;

use socket2::Socket;

use super::{Kind, Listening, end_of, receive, send, with_limits};

/// Function that handles a connection.
type Script = dyn Fn(&Socket) + Send + Sync;

#[derive(Default)]
struct Count {
    total: AtomicUsize,
    /// Connections that are not closed yet.
    current: AtomicUsize,
    /// Connections whose script runs.
    served: AtomicUsize,
    highest: AtomicUsize,
}

/// A running server; stops accepting on drop.
pub(crate) struct Scripted {
    listening: Arc<Listening>,
    count: Arc<Count>,
}

impl Scripted {
    pub(crate) fn start(kind: Kind, script: impl Fn(&Socket) + Send + Sync + 'static) -> Scripted {
        Scripted::on(Listening::new(kind), script)
    }

    pub(crate) fn on(
        listening: Listening,
        script: impl Fn(&Socket) + Send + Sync + 'static,
    ) -> Scripted {
        let listening = Arc::new(listening);
        let count = Arc::new(Count::default());
        let server = Scripted {
            listening: Arc::clone(&listening),
            count: Arc::clone(&count),
        };
        let socket = listening.socket.try_clone().unwrap();
        let script: Arc<Script> = Arc::new(script);
        thread::spawn(move || {
            loop {
                match socket.accept() {
                    Ok((client, _)) => serve(with_limits(client), &count, &script),
                    // No connection arrived for a while.
                    Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => {}
                    Err(_) => return,
                }
            }
        });
        server
    }

    /// Starts a server that sends its name to every client and waits for the end.
    pub(crate) fn named(name: &'static str) -> Scripted {
        Scripted::start(Kind::V4, move |client| {
            send(client, name.as_bytes());
            end_of(client);
        })
    }

    /// Starts a named server at the address of an earlier one.
    pub(crate) fn named_at(name: &'static str, address: &str) -> Scripted {
        Scripted::on(Listening::at(address), move |client| {
            send(client, name.as_bytes());
            end_of(client);
        })
    }

    /// Stops listening; connects are refused when this returns.
    pub(crate) fn close(self) {
        let address = self.address().to_owned();
        drop(self);
        super::until("the end of the listener", || {
            super::try_connect(&address).is_err()
        });
    }

    /// Stops accepting connections.
    pub(crate) fn stop(&self) {
        let _ = self.listening.socket.shutdown(std::net::Shutdown::Both);
    }

    /// Starts a server that echoes its input.
    pub(crate) fn echo(kind: Kind) -> Scripted {
        Scripted::start(kind, echo)
    }

    pub(crate) fn address(&self) -> &str {
        &self.listening.address
    }

    /// Returns the number of connections so far.
    pub(crate) fn total(&self) -> usize {
        self.count.total.load(SeqCst)
    }

    /// Returns the number of current connections.
    pub(crate) fn current(&self) -> usize {
        self.count.current.load(SeqCst)
    }

    /// Returns the highest number of concurrent connections.
    pub(crate) fn highest(&self) -> usize {
        self.count.highest.load(SeqCst)
    }
}

impl Drop for Scripted {
    fn drop(&mut self) {
        self.stop();
    }
}

/// Returns the name (of three letters) of the server that serves this client.
pub(crate) fn name_of(client: &Socket) -> String {
    String::from_utf8(receive(client, 3)).unwrap()
}

fn echo(client: &Socket) {
    use std::io::{Read, Write};
    let (mut reader, mut writer) = (client, client);
    let mut bytes = [0; 4096];
    while let Ok(count) = reader.read(&mut bytes) {
        if count == 0 || writer.write_all(&bytes[..count]).is_err() {
            return;
        }
    }
}

fn serve(client: Socket, count: &Arc<Count>, script: &Arc<Script>) {
    count.total.fetch_add(1, SeqCst);
    count.current.fetch_add(1, SeqCst);
    let now = count.served.fetch_add(1, SeqCst) + 1;
    count.highest.fetch_max(now, SeqCst);
    let (count, script) = (Arc::clone(count), Arc::clone(script));
    let builder = thread::Builder::new().stack_size(64 * 1024);
    let run = move || {
        script(&client);
        // Before the close: the balancer may reconnect as soon as it sees the close.
        count.served.fetch_sub(1, SeqCst);
        drop(client);
        count.current.fetch_sub(1, SeqCst);
    };
    builder.spawn(run).unwrap();
}
