//! Relays connections, and records all their bytes.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Mutex};
use std::thread;

use anyhow::Result;

/// Bytes of one connection.
#[derive(Clone, Debug, Default)]
pub(super) struct Conversation {
    /// Bytes of the client.
    pub(super) sent: Vec<u8>,
    /// Bytes of the server.
    pub(super) received: Vec<u8>,
}

/// A listener whose connections go to one server.
pub(super) struct Tap {
    pub(super) port: u16,
    conversations: Arc<Mutex<Vec<Arc<Mutex<Conversation>>>>>,
    is_over: Arc<AtomicBool>,
}

impl Tap {
    /// Starts to accept connections for the server.
    pub(super) fn start(server: &str) -> Result<Tap> {
        let listener = TcpListener::bind("127.0.0.1:0")?;
        let tap = Tap {
            port: listener.local_addr()?.port(),
            conversations: Arc::default(),
            is_over: Arc::default(),
        };
        let (conversations, is_over) = (Arc::clone(&tap.conversations), Arc::clone(&tap.is_over));
        let server = server.to_owned();
        thread::spawn(move || {
            for client in listener.incoming() {
                if is_over.load(Relaxed) {
                    return;
                }
                let (Ok(client), Ok(server)) = (client, TcpStream::connect(&server)) else {
                    continue;
                };
                let conversation = Arc::default();
                lock(&conversations).push(Arc::clone(&conversation));
                let _ = relay(client, server, &conversation);
            }
        });
        Ok(tap)
    }

    /// Returns the bytes of all connections so far.
    pub(super) fn conversations(&self) -> Vec<Conversation> {
        let all = lock(&self.conversations);
        all.iter().map(|one| lock(one).clone()).collect()
    }
}

impl Drop for Tap {
    fn drop(&mut self) {
        self.is_over.store(true, Relaxed);
        let _ = TcpStream::connect(("127.0.0.1", self.port));
    }
}

fn relay(client: TcpStream, server: TcpStream, record: &Arc<Mutex<Conversation>>) -> Result<()> {
    client.set_nodelay(true)?;
    server.set_nodelay(true)?;
    let (back_from, back_to) = (server.try_clone()?, client.try_clone()?);
    let (forth, back) = (Arc::clone(record), Arc::clone(record));
    thread::spawn(move || {
        copy(client, server, |bytes| {
            lock(&forth).sent.extend_from_slice(bytes);
        });
    });
    thread::spawn(move || {
        copy(back_from, back_to, |bytes| {
            lock(&back).received.extend_from_slice(bytes);
        });
    });
    Ok(())
}

/// Copies until the end, which is passed on; an error ends both directions.
fn copy(mut from: TcpStream, mut to: TcpStream, record: impl Fn(&[u8])) {
    let mut block = [0; 16 * 1024];
    loop {
        match from.read(&mut block) {
            Ok(0) => {
                let _ = to.shutdown(Shutdown::Write);
                return;
            }
            Ok(count) => {
                record(&block[..count]);
                if to.write_all(&block[..count]).is_err() {
                    let _ = from.shutdown(Shutdown::Both);
                    return;
                }
            }
            Err(_) => {
                let _ = to.shutdown(Shutdown::Both);
                return;
            }
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().expect("no holder of the lock panics")
}
