//! Requests that are accepted, read by hyper's server: it must read the same.

use std::cell::RefCell;
use std::convert::Infallible;
use std::future::Future;
use std::io;
use std::pin::{Pin, pin};
use std::rc::Rc;
use std::task::{Context, Poll, Waker};

use evenkeel_wire::http::{Framing, HeadLimits, Parsed, RequestHead, Version};
use hyper::body::{Body, Incoming};
use hyper::rt::{Read, ReadBufCursor, Write};
use hyper::service::service_fn;
use hyper::{Request, Response};

use crate::parts;

/// Connection whose client has sent all of its bytes.
struct Sent {
    bytes: Vec<u8>,
    at: usize,
}

impl Read for Sent {
    fn poll_read(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
        mut buffer: ReadBufCursor<'_>,
    ) -> Poll<io::Result<()>> {
        let rest = &self.bytes[self.at..];
        let count = rest.len().min(buffer.remaining());
        buffer.put_slice(&rest[..count]);
        self.at += count;
        Poll::Ready(Ok(()))
    }
}

impl Write for Sent {
    fn poll_write(
        self: Pin<&mut Self>,
        _: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Poll::Ready(Ok(bytes.len()))
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}

/// Request as hyper reads it.
#[derive(Debug, PartialEq, Eq)]
struct Seen {
    method: String,
    target: String,
    version: hyper::Version,
    fields: Vec<(String, Vec<u8>)>,
    length: Option<u64>,
}

/// Returns the first request that hyper reads.
fn hyper_reads(bytes: &[u8]) -> Option<Seen> {
    let seen = Rc::new(RefCell::new(None));
    let service = service_fn(|request: Request<Incoming>| {
        let fields = request.headers().iter();
        let fields = fields.map(|(name, value)| (name.to_string(), value.as_bytes().to_vec()));
        seen.borrow_mut().get_or_insert(Seen {
            method: request.method().to_string(),
            target: request.uri().to_string(),
            version: request.version(),
            fields: fields.collect(),
            length: request.body().size_hint().exact(),
        });
        async { Ok::<_, Infallible>(Response::new(String::new())) }
    });
    let sent = Sent {
        bytes: bytes.to_vec(),
        at: 0,
    };
    let server = hyper::server::conn::http1::Builder::new();
    let mut connection = pin!(server.serve_connection(sent, service));
    let mut context = Context::from_waker(Waker::noop());
    for _ in 0..20 {
        if connection.as_mut().poll(&mut context).is_ready() {
            break;
        }
    }
    seen.take()
}

#[test]
fn hyper_reads_the_same_in_each_accepted_request() {
    let (mut read, mut refused) = (0, 0);
    for seed in 0..parts::count(20_000) {
        let bytes = parts::a_request(&mut parts::Chance::of(seed));
        let mut head = RequestHead::new();
        if head.parse(&bytes, &HeadLimits::default()) != Parsed::Complete {
            continue;
        }
        let Some(seen) = hyper_reads(&bytes) else {
            // Bytes of targets that the type of URIs refuses.
            refused += 1;
            let target = head.path(&bytes);
            let odd = |byte: &u8| b"\"<>\\^`{|}".contains(byte) || !byte.is_ascii();
            let query = head.query(&bytes).unwrap_or_default();
            assert!(
                target.iter().chain(query).any(odd),
                "{}",
                bytes.escape_ascii()
            );
            continue;
        };
        read += 1;
        check_same(&head, &bytes, &seen);
    }
    println!("{read} read by both, {refused} refused by hyper");
    assert!(read > 200, "{read}");
}

fn check_same(head: &RequestHead, bytes: &[u8], seen: &Seen) {
    let text = bytes.escape_ascii();
    assert_eq!(seen.method.as_bytes(), head.method_text(bytes), "{text}");
    let version = match head.version() {
        Version::Http10 => hyper::Version::HTTP_10,
        Version::Http11 => hyper::Version::HTTP_11,
    };
    assert_eq!(seen.version, version, "{text}");
    let path = head.path_and_query(bytes);
    let target = [path.path, path.query].concat();
    let same = seen.target.as_bytes().ends_with(&target) || target == b"*";
    assert!(same, "{} in {text}", seen.target);
    let length = match head.framing() {
        Framing::None => Some(0),
        Framing::Length(length) => Some(length),
        Framing::Chunked | Framing::UntilClose => None,
    };
    assert_eq!(seen.length, length, "{text}");
    for field in head.fields(bytes) {
        let name = String::from_utf8_lossy(field.name).to_ascii_lowercase();
        let found = (seen.fields.iter()).any(|(n, value)| *n == name && value == field.value);
        assert!(found, "{name} in {text}");
    }
    let dropped = head.fields_dropped() as usize;
    assert_eq!(seen.fields.len(), head.field_count() + dropped, "{text}");
}
