//! Server of crate h2, which answers nothing.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::io;
use std::pin::{Pin, pin};
use std::rc::Rc;
use std::task::{Context, Poll, Waker};

use h2::RecvStream;
use h2::server::{Builder, Connection, SendResponse};
use hyper::body::Bytes;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use crate::invariants::PREFACE;
use crate::our_server::{Body, Requests, has_frame};

/// Connection whose client has sent all of its bytes, and keeps it open.
struct Pipe {
    bytes: Vec<u8>,
    at: usize,
    sent: Rc<RefCell<Vec<u8>>>,
}

impl AsyncRead for Pipe {
    fn poll_read(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let rest = &self.bytes[self.at..];
        let count = rest.len().min(buffer.remaining());
        if count == 0 {
            return Poll::Pending;
        }
        buffer.put_slice(&rest[..count]);
        self.at += count;
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for Pipe {
    fn poll_write(
        self: Pin<&mut Self>,
        _: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.sent.borrow_mut().extend(bytes);
        Poll::Ready(Ok(bytes.len()))
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}

/// Request whose body may go on.
struct Exchange {
    body: RecvStream,
    response: SendResponse<Bytes>,
    read: Body,
}

/// Returns the requests in these bytes, or the fault of the connection or of a stream.
pub(crate) fn read(bytes: &[u8]) -> Result<Requests, String> {
    let sent = Rc::new(RefCell::new(Vec::new()));
    let pipe = Pipe {
        bytes: [PREFACE, bytes].concat(),
        at: 0,
        sent: Rc::clone(&sent),
    };
    let mut builder = Builder::new();
    builder
        .enable_connect_protocol()
        .data_frame_budget(1 << 30)
        .max_concurrent_streams(100)
        .max_pending_accept_reset_streams(1_000);
    let mut context = Context::from_waker(Waker::noop());
    let handshake = pin!(builder.handshake::<_, Bytes>(pipe));
    let mut connection = match handshake.poll(&mut context) {
        Poll::Pending => return Ok(Requests::new()),
        Poll::Ready(Ok(connection)) => connection,
        Poll::Ready(Err(error)) => return Err(format!("{error:?}")),
    };
    let mut exchanges = BTreeMap::new();
    for _ in 0..3 {
        accept(&mut connection, &mut exchanges, &mut context)?;
        exchanges.retain(|_, exchange| progress(exchange, &mut context));
    }
    match has_frame(&sent.borrow(), 3) || has_frame(&sent.borrow(), 7) {
        true => Err("RST_STREAM or GOAWAY".to_owned()),
        false => Ok(exchanges
            .into_iter()
            .map(|(stream, exchange)| (stream, exchange.read))
            .collect()),
    }
}

/// Takes all requests that have arrived.
fn accept(
    connection: &mut Connection<Pipe, Bytes>,
    exchanges: &mut BTreeMap<u32, Exchange>,
    context: &mut Context<'_>,
) -> Result<(), String> {
    while let Poll::Ready(Some(accepted)) = connection.poll_accept(context) {
        let (request, response) = accepted.map_err(|error| format!("{error:?}"))?;
        let stream = response.stream_id().as_u32();
        let exchange = Exchange {
            body: request.into_body(),
            response,
            read: Body::default(),
        };
        exchanges.insert(stream, exchange);
    }
    Ok(())
}

/// Reads what has arrived of a body. Returns false if the client has reset the stream.
fn progress(exchange: &mut Exchange, context: &mut Context<'_>) -> bool {
    if exchange.response.poll_reset(context).is_ready() {
        return false;
    }
    loop {
        match exchange.body.poll_data(context) {
            Poll::Ready(Some(Ok(bytes))) => exchange.read.bytes.extend_from_slice(&bytes),
            Poll::Ready(Some(Err(_))) => return false,
            Poll::Ready(None) => {
                let ended = exchange.body.poll_trailers(context);
                exchange.read.is_complete = matches!(ended, Poll::Ready(Ok(_)));
                return !matches!(ended, Poll::Ready(Err(_)));
            }
            Poll::Pending => return true,
        }
    }
}
