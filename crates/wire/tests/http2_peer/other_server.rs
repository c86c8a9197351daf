//! Server of crate h2, which does as the plans say, and compares each request with its plan.

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::rc::Rc;

use h2::server::SendResponse;
use h2::{Reason, RecvStream, SendStream};
use hyper::body::Bytes;
use hyper::{HeaderMap, Request, Response};
use tokio::io::DuplexStream;
use tokio::sync::oneshot;
use tokio::task::JoinSet;

use crate::chance::Chance;
use crate::plan::{Fate, Message, Plan, bytes_of};
use crate::side::{Role, seed};

/// Serves until the client and all answers are done.
pub(crate) async fn serve(
    pipe: DuplexStream,
    plans: Rc<Vec<Plan>>,
    mut chance: Chance,
    mut client_done: oneshot::Receiver<()>,
) -> Result<(), String> {
    let mut builder = h2::server::Builder::new();
    builder
        .data_frame_budget(1 << 30)
        .max_concurrent_streams(chance.size(1, 20) as u32)
        .initial_window_size(chance.size(1_000, 200_000) as u32)
        .initial_connection_window_size(chance.size(65_535, 300_000) as u32)
        .max_frame_size(chance.size(16_384, 200_000) as u32);
    let mut connection = builder.handshake(pipe).await.map_err(in_words)?;
    let refused = Rc::new(RefCell::new(BTreeSet::new()));
    let mut answers = JoinSet::new();
    let mut is_last = false;
    while !is_last || !answers.is_empty() {
        tokio::select! {
            biased;
            accepted = connection.accept() => {
                let accepted = accepted.ok_or("the client has closed")?;
                let (request, response) = accepted.map_err(in_words)?;
                let (plans, refused) = (Rc::clone(&plans), Rc::clone(&refused));
                answers.spawn_local(answer(request, response, plans, refused, chance.fork()));
            }
            Some(ended) = answers.join_next() => ended.map_err(|error| error.to_string())??,
            _ = &mut client_done, if !is_last => is_last = true,
        }
    }
    Ok(())
}

fn in_words(error: h2::Error) -> String {
    format!("{error:?}")
}

async fn answer(
    request: Request<RecvStream>,
    mut response: SendResponse<Bytes>,
    plans: Rc<Vec<Plan>>,
    refused: Rc<RefCell<BTreeSet<usize>>>,
    mut chance: Chance,
) -> Result<(), String> {
    let number: usize = request.uri().path()[1..].parse().expect("a number");
    let plan = &plans[number];
    if plan.fate == Fate::Refused && refused.borrow_mut().insert(number) {
        response.send_reset(Reason::REFUSED_STREAM);
        return Ok(());
    }
    assert_eq!(request.method().as_str(), plan.method_text());
    for (name, value) in &plan.request.fields {
        assert_eq!(request.headers()[name], value.as_str());
    }
    let receiving = receive(request.into_body(), number, plan, chance.fork());
    let sending = send(response, number, plan, chance.fork());
    let result = match plan.fate {
        // The request is dropped, and stopped.
        Fate::Early => sending.await,
        _ => tokio::try_join!(receiving, sending).map(|_| ()),
    };
    match (plan.fate, result) {
        (Fate::ClientResets(_), Err(_)) => Ok(()),
        (Fate::ServerResets(_), Err(error)) if error.reason() == Some(Reason::INTERNAL_ERROR) => {
            Ok(())
        }
        (fate, Err(error)) => Err(format!("plan {number}, {fate:?}: {error:?}")),
        (_, Ok(())) => Ok(()),
    }
}

async fn receive(
    mut body: RecvStream,
    number: usize,
    plan: &Plan,
    mut chance: Chance,
) -> Result<(), h2::Error> {
    let message = &plan.request;
    let mut received = 0;
    while let Some(part) = body.data().await {
        let part = part?;
        let expect = bytes_of(seed(number, Role::Server), received, part.len());
        assert!(part == expect, "plan {number}: other bytes at {received}");
        received += part.len();
        for _ in 0..chance.below(4) {
            tokio::task::yield_now().await;
        }
        body.flow_control().release_capacity(part.len())?;
    }
    let trailers = body.trailers().await?;
    let trailer = trailers.and_then(|it| it.get("x-sum").cloned());
    let trailer = trailer.map(|it| it.to_str().expect("a text").to_owned());
    assert_eq!((received, trailer), (message.body, message.trailer.clone()));
    Ok(())
}

async fn send(
    mut response: SendResponse<Bytes>,
    number: usize,
    plan: &Plan,
    mut chance: Chance,
) -> Result<(), h2::Error> {
    let message = &plan.response;
    let mut head = Response::builder().status(200);
    for (name, value) in &message.fields {
        head = head.header(name, value);
    }
    for _ in 0..chance.below(10) {
        tokio::task::yield_now().await;
    }
    let head = head.body(()).expect("a response");
    let mut sender = response.send_response(head, message.ends_with_head)?;
    if message.ends_with_head && !matches!(plan.fate, Fate::ServerResets(_)) {
        return Ok(());
    }
    let bytes = bytes_of(seed(number, Role::Client), 0, message.body);
    match plan.fate {
        Fate::ServerResets(at) => {
            send_part(&mut sender, &bytes[..at], &mut chance).await?;
            sender.send_reset(Reason::INTERNAL_ERROR);
            Ok(())
        }
        _ => {
            send_part(&mut sender, &bytes, &mut chance).await?;
            end(&mut sender, message)
        }
    }
}

async fn send_part(
    sender: &mut SendStream<Bytes>,
    mut rest: &[u8],
    chance: &mut Chance,
) -> Result<(), h2::Error> {
    while !rest.is_empty() {
        let want = chance.size(1, rest.len());
        sender.reserve_capacity(want);
        let room = std::future::poll_fn(|context| sender.poll_capacity(context)).await;
        let Some(room) = room else {
            return Ok(());
        };
        let (part, after) = rest.split_at(want.min(room?));
        rest = after;
        sender.send_data(Bytes::copy_from_slice(part), false)?;
    }
    Ok(())
}

fn end(sender: &mut SendStream<Bytes>, message: &Message) -> Result<(), h2::Error> {
    let Some(trailer) = &message.trailer else {
        return sender.send_data(Bytes::new(), true);
    };
    let mut trailers = HeaderMap::new();
    trailers.insert("x-sum", trailer.parse().expect("a value"));
    sender.send_trailers(trailers)
}
