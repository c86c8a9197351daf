//! Begins a client connection: TLS, if the service has it.

use std::rc::Rc;
use std::time::Duration;

use evenkeel_engine::socket::Socket;
use evenkeel_engine::stream::Stream;
use evenkeel_engine::timers;
use evenkeel_tls::HttpAcceptor;
use evenkeel_wire::tls_hello::{self, HANDSHAKE_RECORD, Parsed};

use crate::record::TerminationReason;
use crate::service::ClientPermit;
use crate::worker::Worker;

/// Time in which a client must complete its TLS handshake.
const HANDSHAKE_LIMIT: Duration = Duration::from_secs(10);

/// Begins TLS, if the service has it and the client begins with a handshake. Bytes of requests are
/// added to `early`.
pub(super) async fn greet(
    worker: &Rc<Worker>,
    permit: &ClientPermit,
    socket: Socket,
    early: &mut Vec<u8>,
) -> Result<Stream, TerminationReason> {
    let mut stream = Stream::plain(socket);
    let view = permit.service().snapshot_owned();
    let Some(acceptor) = view.http().and_then(|http| http.tls.as_ref()) else {
        return Ok(stream);
    };
    let greeting = begin(worker, &mut stream, acceptor, early);
    match timers::timeout(HANDSHAKE_LIMIT, greeting).await {
        Ok(greeted) => greeted.map(|()| stream),
        Err(_) => Err(failed(format!(
            "handshake not completed within {} ms",
            HANDSHAKE_LIMIT.as_millis()
        ))),
    }
}

async fn begin(
    worker: &Rc<Worker>,
    stream: &mut Stream,
    acceptor: &HttpAcceptor,
    early: &mut Vec<u8>,
) -> Result<(), TerminationReason> {
    let mut first = Vec::new();
    receive(worker, stream, &mut first).await?;
    // No method begins with this byte.
    if first.first() != Some(&HANDSHAKE_RECORD) {
        *early = first;
        return Ok(());
    }
    let name = match acceptor.has_policies_by_name() {
        true => server_name(worker, stream, &mut first).await?,
        false => None,
    };
    let channel = acceptor.accept(name.as_deref());
    stream.encrypt(channel.map_err(|error| failed(error.to_string()))?);
    let shaken = stream.shake_hands(worker, &first, early).await;
    shaken.map_err(|error| failed(error.to_string()))
}

/// Receives the rest of the ClientHello, and returns the name that the client asks for.
async fn server_name(
    worker: &Rc<Worker>,
    stream: &mut Stream,
    received: &mut Vec<u8>,
) -> Result<Option<Box<str>>, TerminationReason> {
    loop {
        match tls_hello::parse(received) {
            Parsed::Hello { server_name } => return Ok(server_name),
            Parsed::Incomplete => {}
            Parsed::Invalid(error) => return Err(failed(error.to_string())),
        }
        if !receive(worker, stream, received).await? {
            return Err(TerminationReason::ClientClosed);
        }
    }
}

async fn receive(
    worker: &Rc<Worker>,
    stream: &mut Stream,
    bytes: &mut Vec<u8>,
) -> Result<bool, TerminationReason> {
    let received = stream.receive(worker, bytes).await;
    received.map_err(|error| TerminationReason::ResetByClient(error.to_string()))
}

fn failed(why: String) -> TerminationReason {
    TerminationReason::Rejected(format!("TLS: {why}"))
}
