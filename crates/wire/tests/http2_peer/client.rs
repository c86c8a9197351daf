//! Client of crate h2, which compares what it receives with what the server was asked for.

use h2::client::SendRequest;
use h2::{Reason, RecvStream, SendStream};
use hyper::body::Bytes;
use hyper::{HeaderMap, Method, Request};
use tokio::io::DuplexStream;
use tokio::task::JoinSet;

use crate::chance::Chance;
use crate::server::Plan;

/// Number of exchanges that ended in each way.
#[derive(Debug, Default)]
pub(crate) struct Seen {
    pub(crate) echoes: u64,
    pub(crate) trailers: u64,
    pub(crate) resets: u64,
    pub(crate) cancelled: u64,
    pub(crate) early: u64,
    pub(crate) bytes: u64,
}

impl Seen {
    pub(crate) fn add(&mut self, more: Seen) {
        self.echoes += more.echoes;
        self.trailers += more.trailers;
        self.resets += more.resets;
        self.cancelled += more.cancelled;
        self.early += more.early;
        self.bytes += more.bytes;
    }
}

/// Sends requests until they are answered.
pub(crate) async fn run(pipe: DuplexStream, mut chance: Chance) -> Result<Seen, String> {
    let mut builder = h2::client::Builder::new();
    builder
        // Our server sends parts of any size.
        .data_frame_budget(1 << 30)
        .initial_window_size(chance.size(3_000, 200_000) as u32)
        .initial_connection_window_size(chance.size(65_535, 300_000) as u32)
        .max_frame_size(chance.size(16_384, 200_000) as u32)
        .header_table_size(chance.size(1, 8_192) as u32);
    let (client, connection) = builder.handshake(pipe).await.map_err(in_words)?;
    let connection = tokio::spawn(connection);
    let mut requests = JoinSet::new();
    let mut seen = Seen::default();
    let mut client = client;
    for _ in 0..chance.size(1, 6) {
        client = client.ready().await.map_err(in_words)?;
        start(&mut client, &mut requests, chance.fork())?;
        if chance.one_in(3)
            && let Some(done) = requests.join_next().await
        {
            seen.add(done.map_err(|error| error.to_string())??);
        }
    }
    while let Some(done) = requests.join_next().await {
        seen.add(done.map_err(|error| error.to_string())??);
    }
    drop(client);
    let ended = connection.await.map_err(|error| error.to_string())?;
    ended.map_err(in_words)?;
    Ok(seen)
}

fn in_words(error: h2::Error) -> String {
    format!("{error:?}")
}

/// Sends one request, and starts what comes after its head.
fn start(
    client: &mut SendRequest<Bytes>,
    requests: &mut JoinSet<Result<Seen, String>>,
    mut chance: Chance,
) -> Result<(), String> {
    let plan = match chance.below(6) {
        0 => Plan::Early(chance.size(0, 30_000)),
        1 => Plan::Reset(chance.size(0, 30_000)),
        2 | 3 => Plan::EchoWithTrailers,
        _ => Plan::Echo,
    };
    let length = match chance.one_in(4) {
        true => 0,
        false => chance.size(1, 100_000),
    };
    let body = chance.bytes(length);
    let uri = format!("https://shop.example{}", plan.path());
    let mut request = Request::builder().method(Method::POST).uri(uri);
    for number in 0..chance.below(5) {
        request = request.header(format!("x-{}", chance.below(10)), "y".repeat(number * 30));
    }
    if chance.one_in(2) {
        request = request.header("content-length", length);
    }
    let request = request.body(()).expect("a request");
    let has_no_body = length == 0 && chance.one_in(2);
    let (response, sender) = client
        .send_request(request, has_no_body)
        .map_err(in_words)?;
    if chance.one_in(12) {
        requests.spawn(cancel(sender, body, chance));
        return Ok(());
    }
    requests.spawn(async move {
        let expected = body.clone();
        let sending = tokio::spawn(send(sender, body, has_no_body, chance.fork()));
        let response = async move {
            let (head, body) = response.await?.into_parts();
            let (bytes, trailers) = receive(body, chance).await?;
            Ok((head, bytes, trailers))
        };
        let received = response.await;
        sending.abort();
        let _ = sending.await;
        match received {
            Ok((head, bytes, trailers)) if head.status == 200 => {
                judge(plan, &expected, &bytes, trailers)
            }
            Ok((head, ..)) => Err(format!("{}", head.status)),
            Err(error) => judge_error(plan, &error),
        }
    });
    Ok(())
}

/// Resets the stream after a part of the request.
async fn cancel(
    mut sender: SendStream<Bytes>,
    body: Vec<u8>,
    mut chance: Chance,
) -> Result<Seen, String> {
    let part = chance.below(body.len() + 1);
    let _ = sender.send_data(Bytes::from(body[..part].to_vec()), false);
    for _ in 0..chance.below(5) {
        tokio::task::yield_now().await;
    }
    sender.send_reset(Reason::CANCEL);
    Ok(Seen {
        cancelled: 1,
        ..Seen::default()
    })
}

/// Sends a body in parts, as far as the server lets it.
async fn send(
    mut sender: SendStream<Bytes>,
    body: Vec<u8>,
    has_no_body: bool,
    mut chance: Chance,
) -> Result<(), h2::Error> {
    if has_no_body {
        return Ok(());
    }
    let with_trailers = chance.one_in(4);
    let mut rest = &body[..];
    while !rest.is_empty() {
        let want = chance.size(1, rest.len());
        sender.reserve_capacity(want);
        let Some(room) = std::future::poll_fn(|context| sender.poll_capacity(context)).await else {
            return Ok(());
        };
        let (part, after) = rest.split_at(want.min(room?));
        rest = after;
        let end = rest.is_empty() && !with_trailers && chance.one_in(2);
        sender.send_data(Bytes::copy_from_slice(part), end)?;
        if end {
            return Ok(());
        }
    }
    if with_trailers {
        let mut trailers = HeaderMap::new();
        trailers.insert("x-checksum", "0".parse().expect("a value"));
        return sender.send_trailers(trailers);
    }
    sender.send_data(Bytes::new(), true)
}

async fn receive(
    mut body: RecvStream,
    mut chance: Chance,
) -> Result<(Vec<u8>, Option<HeaderMap>), h2::Error> {
    let mut bytes = Vec::new();
    while let Some(part) = body.data().await {
        let part = part?;
        bytes.extend_from_slice(&part);
        for _ in 0..chance.below(4) {
            tokio::task::yield_now().await;
        }
        body.flow_control().release_capacity(part.len())?;
    }
    let trailers = body.trailers().await?;
    Ok((bytes, trailers))
}

/// Compares an answer with its plan.
fn judge(
    plan: Plan,
    sent: &[u8],
    received: &[u8],
    trailers: Option<HeaderMap>,
) -> Result<Seen, String> {
    let mut seen = Seen {
        bytes: received.len() as u64,
        ..Seen::default()
    };
    let trailer = trailers.and_then(|trailers| trailers.get("x-end").cloned());
    let is_right = match plan {
        Plan::Echo => {
            seen.echoes = 1;
            received == sent && trailer.is_none()
        }
        Plan::EchoWithTrailers => {
            seen.trailers = 1;
            received == sent && trailer.is_some_and(|value| value == "yes")
        }
        Plan::Early(bytes) => {
            seen.early = 1;
            received == vec![7; bytes] && trailer.is_none()
        }
        Plan::Reset(_) => false,
    };
    match is_right {
        true => Ok(seen),
        false => Err(format!(
            "{plan:?}: {} of {} bytes",
            received.len(),
            sent.len()
        )),
    }
}

fn judge_error(plan: Plan, error: &h2::Error) -> Result<Seen, String> {
    let mut seen = Seen::default();
    match (plan, error.reason()) {
        (Plan::Reset(_), Some(Reason::HTTP_1_1_REQUIRED)) => seen.resets = 1,
        // The reset that stops the request may overtake the answer that is not read yet.
        (Plan::Early(_), Some(Reason::NO_ERROR)) => seen.early = 1,
        _ => return Err(format!("{plan:?}: {error:?}")),
    }
    Ok(seen)
}
