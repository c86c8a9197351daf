//! A balancer in front of Evenkeel that sends PROXY headers.

use std::io::{Read, Write, copy};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::thread;

use super::LIMIT;

/// Starts a forwarder to `to` that sends this header first, and returns its address. The forwarder
/// ends with the tests.
pub(crate) fn introduced(to: SocketAddr, header: &'static str) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free address");
    let address = listener.local_addr().expect("it has one");
    thread::spawn(move || {
        for client in listener.incoming().flatten() {
            let Ok(mut server) = TcpStream::connect(to) else {
                continue;
            };
            if server.write_all(header.as_bytes()).is_ok() {
                let clone = |stream: &TcpStream| stream.try_clone().expect("a descriptor");
                let back = (clone(&server), clone(&client));
                thread::spawn(move || pass(client, server));
                thread::spawn(move || pass(back.0, back.1));
            }
        }
    });
    address
}

fn pass(mut from: TcpStream, mut to: TcpStream) {
    // Either side may disconnect at any time.
    let _ = copy(&mut from, &mut to);
    let _ = to.shutdown(Shutdown::Write);
}

/// Returns whether a client without a header is disconnected without an answer.
pub(crate) fn is_left_without_a_word(address: SocketAddr) -> bool {
    let mut stream = TcpStream::connect(address).expect("it listens");
    let limited = stream.set_read_timeout(Some(LIMIT));
    limited.expect("a timeout may be set");
    // The connection may already have ended.
    let _ = stream.write_all(b"no header at all, but some 40 other bytes");
    matches!(stream.read(&mut [0; 1]), Ok(0) | Err(_))
}
