//! Sends the inputs through a proxy in front of the balancer, and judges what the server has seen.
//!
//! A proxy may repair what it accepts. The strict reading is therefore that of the bytes that it
//! has sent to the balancer. On each of its connections the responses must match its requests.

use std::collections::BTreeMap;

use anyhow::{Result, bail};

use super::inputs::Input;
use super::origin::Origin;
use super::proxy::{Proxy, ProxyKind};
use super::reference::{self, Request};
use super::responses;
use super::run::{self, Row, Verdict};
use super::tap::{Conversation, Tap};
use crate::{Balancer, free_port};

/// Name of the service, which the balancer sends as the host of requests of HTTP/1.0 without one.
const SERVICE: &str = "attack";

/// Sends the inputs to a server through the proxy and a balancer on this driver.
///
/// # Errors
/// The proxy or the balancer does not start, or the server's records cannot be read.
pub fn run_through(
    io: &str,
    kind: ProxyKind,
    origin: &Origin,
    inputs: &[Input],
) -> Result<Vec<Row>> {
    let listen = format!("127.0.0.1:{}", free_port());
    // The proxy keeps its connections, so that each of them has many requests.
    let balancer = Balancer::start(&run::config(io, &listen, origin, 20_000))?;
    let tap = Tap::start(&listen)?;
    let proxy = Proxy::start(kind, tap.port)?;
    let answers = run::attack_all(&proxy.address, inputs);
    if !balancer.is_running() {
        bail!("the balancer has ended: {}", balancer.log());
    }
    drop(proxy);
    let conversations = tap.conversations();
    let mut passed = by_input(&conversations);
    let mut seen = run::by_input(origin.records()?);
    let mut rows = Vec::new();
    for (number, input) in inputs.iter().enumerate() {
        let passed = passed.remove(&number).unwrap_or_default();
        let records = seen.remove(&number).unwrap_or_default();
        let answer = &answers[&number];
        let served: Vec<_> = records.iter().filter(|one| !one.is_refused()).collect();
        let got: Vec<Request> = served.iter().map(|one| run::request_of(one)).collect();
        let wrong = run::wrong_follower(number, answer).or_else(|| run::wrong_fields(&served));
        let verdict = match wrong {
            Some(why) => Verdict::Fault(why),
            None => compare(&got, &passed, origin),
        };
        rows.push(Row {
            name: input.name.clone(),
            expected: passed.len(),
            seen: got.len(),
            answer: answer.last_line.clone(),
            verdict,
        });
    }
    rows.extend(conversations.iter().filter_map(wrong_conversation));
    Ok(rows)
}

/// Compares the requests without their order, since a proxy may use several connections.
fn compare(seen: &[Request], passed: &[Request], origin: &Origin) -> Verdict {
    let mut left: Vec<Request> = passed
        .iter()
        .map(|one| origin.kind.reported(one.clone()))
        .collect();
    for one in seen {
        match left.iter().position(|other| other == one) {
            Some(at) => drop(left.swap_remove(at)),
            None => return Verdict::Fault(format!("saw {one:?}; the proxy sent {passed:?}")),
        }
    }
    match left.as_slice() {
        [] => Verdict::Exact,
        _ => Verdict::Refused,
    }
}

/// Groups the strict reading of what the proxy has sent by the input whose word it carries.
fn by_input(conversations: &[Conversation]) -> BTreeMap<usize, Vec<Request>> {
    let mut groups: BTreeMap<usize, Vec<Request>> = BTreeMap::new();
    let all = conversations.iter().map(|one| &*one.sent);
    for (mut request, bytes) in all.flat_map(reference::read_with_bytes) {
        if request.host.is_empty() {
            SERVICE.clone_into(&mut request.host);
        }
        let number = run::number_in(&String::from_utf8_lossy(bytes));
        if let Some(number) = number.filter(|_| !request.target.starts_with("/check/")) {
            groups.entry(number).or_default().push(request);
        }
    }
    groups
}

/// Returns a row if a response does not belong to the request at its place.
fn wrong_conversation(conversation: &Conversation) -> Option<Row> {
    let requests = reference::read(&conversation.sent);
    let why = responses::mismatch(&requests, &conversation.received)?;
    Some(Row {
        name: "responses of a connection".to_owned(),
        expected: requests.len(),
        seen: 0,
        answer: String::new(),
        verdict: Verdict::Fault(format!(
            "{why}; sent {:?}, received {:?}",
            String::from_utf8_lossy(&conversation.sent),
            String::from_utf8_lossy(&conversation.received)
        )),
    })
}
