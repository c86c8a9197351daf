//! Tests with servers that send malformed and ambiguous responses: the client gets a refusal or a
//! visibly truncated response, other clients get their own, and the connection is not used again.

use crate::client::{Client, Ended};
use crate::origin::{Origin, ok, reply};
use crate::peer::{self, until};
use crate::{Bed, on_both_drivers};

#[path = "hostile_cases.rs"]
mod cases;

use cases::{Case, Outcome, POISON};

on_both_drivers! {
    hostile_responses_harm_nobody
}

/// Limits that end the cases in which the server is silent.
const LIMITS: &str = "[service.times]\nfirst_byte_ms = 300\nbody_idle_ms = 300\n\
                      [service.retry]\non = [\"unsent\"]\n";

/// Starts a server that answers `/N` with case N and a second response, which no request asked
/// for, and other paths with themselves.
fn origin() -> Origin {
    let all = cases::all();
    Origin::scripted(move |incoming, log| {
        while let Some(seen) = incoming.request() {
            let Ok(number) = seen.path()[1..].parse::<usize>() else {
                log(&seen);
                reply(incoming.socket, ok(seen.path()));
                continue;
            };
            let case: &Case = &all[number];
            reply(incoming.socket, &case.bytes);
            if case.is_followed && !case.ends {
                reply(incoming.socket, POISON);
            }
            // The test goes on after the last byte.
            log(&seen);
            if case.ends {
                return;
            }
        }
    })
}

/// Reads all bytes until the connection ends, or until a complete response.
fn outcome(client: &mut Client, case: &Case, path: &str) -> Outcome {
    client.send(format!(
        "{} {path} HTTP/1.1\r\nHost: a\r\n\r\n",
        case.method
    ));
    loop {
        let answer = client.try_answer(case.method == "HEAD");
        let received = match &answer {
            Ok(answer) => answer.head.clone() + &answer.text(),
            Err((_, read)) => read.clone(),
        };
        assert!(!received.contains("poison"), "{}: {received}", case.name);
        match answer {
            Ok(answer) if answer.status < 200 => {}
            Ok(answer) if answer.status == 502 => return Outcome::BadGateway,
            Ok(answer) if answer.status == 504 => return Outcome::Timeout,
            Ok(answer) => return Outcome::Whole(answer.status, answer.text()),
            Err((Ended::Reset, _)) => return Outcome::Cut,
            Err((Ended::Clean, read)) => panic!("{}: a clean end after {read:?}", case.name),
        }
    }
}

fn hostile_responses_harm_nobody(io: &str) {
    let origin = origin();
    let bed = Bed::new(io, &[&origin], LIMITS);
    let all = cases::all();
    println!("{} responses", all.len());
    assert!(all.len() >= 60);
    let mut wrong = Vec::new();
    for (number, case) in all.iter().enumerate() {
        let path = format!("/{number}");
        let mut client = bed.client();
        let got = outcome(&mut client, case, &path);
        if got != case.outcome {
            wrong.push(format!("{}: {got:?}, not {:?}", case.name, case.outcome));
        }
        // No client can know that a response which comes after its request belongs to none.
        until("the last byte of the server", || {
            origin.seen().iter().any(|seen| seen.path() == path)
        });
        // The client itself, if its connection is open, and another one.
        let check = format!("/check/{number}");
        if matches!(got, Outcome::Whole(..)) {
            assert_eq!(client.get(&check).text(), check, "{}", case.name);
        }
        assert_eq!(bed.client().get(&check).text(), check, "{}", case.name);
        let seen = origin.seen();
        let at = seen.iter().position(|seen| seen.path() == path);
        let at = at.unwrap_or_else(|| panic!("{} was not asked for", case.name));
        let connection = seen[at].connection;
        let mut after = seen[at + 1..].iter();
        let is_reused = after.any(|later| later.connection == connection);
        if is_reused {
            wrong.push(format!("{}: the connection is used again", case.name));
        }
    }
    assert!(wrong.is_empty(), "{io}: {wrong:#?}");
    peer::until_service(&bed.balancer, "no session", |service| {
        service["sessions"]["current"] == 0
    });
}
