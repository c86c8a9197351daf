//! Clients that disconnect in the middle of a query, a COPY, a pipeline, a transaction or a
//! message.

use std::thread::sleep;
use std::time::Duration;

use evenkeel_wire::postgres::backend::Message;
use evenkeel_wire::postgres::build;
use evenkeel_wire::postgres::frontend::Target;

use super::client::{Client, copy_data};
use super::reply::Reply;
use crate::chaos::abrupt_clients::{
    AbruptAction, CANCEL_LIMIT, CANCELS_MAX, SLEEP_S, linger, part,
};
use crate::chaos::failure::Failure;
use crate::chaos::observations::Violation;
use crate::chaos::seed::ChaosRng;
use crate::chaos::stage::TestBed;

pub(super) const ALL: [(&str, AbruptAction<Client>); 11] = [
    ("left in a query", leave_query),
    ("left in COPY IN", leave_copy_in),
    ("left in COPY OUT", leave_copy_out),
    ("left in a pipeline", leave_pipeline),
    ("left in a transaction", leave_transaction),
    ("left in a failed transaction", leave_failed_transaction),
    ("left in a message", leave_message),
    ("left with state", leave_state),
    ("cancelled", cancel),
    ("left while queued", leave_at_once),
    ("left in a login", leave_login),
];

fn leave_query(
    _: &TestBed,
    mut client: Client,
    rng: &mut ChaosRng,
    tag: &str,
) -> Result<(), Failure> {
    let text = format!(
        "SELECT '{tag}', n, CASE n WHEN 1 THEN pg_sleep(0.2) END FROM generate_series(1, 2000) n"
    );
    send_query(&mut client, &text)?;
    linger(rng, 300);
    client.abort(rng.below(2) == 0);
    Ok(())
}

/// Disconnects during COPY; none of its rows may be committed.
fn leave_copy_in(
    bed: &TestBed,
    mut client: Client,
    rng: &mut ChaosRng,
    tag: &str,
) -> Result<(), Failure> {
    send_query(&mut client, "COPY chaos_ghost FROM STDIN")?;
    if let Some(reply) = client.wait_copy_in()? {
        let reply = reply.into_result()?;
        let what = format!("{tag}: COPY was answered by {:?}", reply.tags);
        bed.observations
            .compare(tag, "a request for data", Some(&what));
    }
    let mut data = Vec::new();
    for _ in 0..rng.below(50) {
        copy_data(&mut data, format!("{tag}\n").as_bytes());
    }
    let cut = data.len() - rng.below(data.len() as u64 / 2 + 1) as usize;
    client.send(&data[..cut])?;
    linger(rng, 30);
    client.abort(rng.below(2) == 0);
    Ok(())
}

fn leave_copy_out(
    bed: &TestBed,
    mut client: Client,
    rng: &mut ChaosRng,
    tag: &str,
) -> Result<(), Failure> {
    let text = format!("COPY (SELECT '{tag}', generate_series(1, 50000)) TO STDOUT");
    send_query(&mut client, &text)?;
    for _ in 0..rng.below(200) {
        let goes_on = client.with_message(|message| match message {
            Message::CopyData(line) => {
                let line = String::from_utf8_lossy(line);
                Ok(bed.observations.compare(tag, tag, line.split('\t').next()))
            }
            Message::Error(_) | Message::ReadyForQuery(_) => Ok(false),
            _ => Ok(true),
        })?;
        if !goes_on {
            break;
        }
    }
    client.abort(rng.below(2) == 0);
    Ok(())
}

fn leave_pipeline(
    bed: &TestBed,
    mut client: Client,
    rng: &mut ChaosRng,
    tag: &str,
) -> Result<(), Failure> {
    let mut packet = Vec::new();
    for number in 0..10 {
        let text = format!("SELECT '{tag}.{number}'");
        build::parse(&mut packet, b"", text.as_bytes(), &[]);
        build::bind(&mut packet, b"", b"", &[]);
        build::describe(&mut packet, Target::Portal(b""));
        build::execute(&mut packet, b"", 0);
        build::sync(&mut packet);
    }
    let cut = packet.len() - rng.below(packet.len() as u64 / 2) as usize;
    client.send(&packet[..cut])?;
    for number in 0..rng.below(4) {
        let reply = client.reply()?.into_result()?;
        bed.observations
            .compare(tag, &format!("{tag}.{number}"), reply.value(0, 0));
    }
    client.abort(rng.below(2) == 0);
    Ok(())
}

/// Disconnects during a transaction; none of its rows may be committed.
fn leave_transaction(
    _: &TestBed,
    mut client: Client,
    rng: &mut ChaosRng,
    tag: &str,
) -> Result<(), Failure> {
    client.query("BEGIN")?;
    client.query(&format!("INSERT INTO chaos_ghost VALUES ('{tag}')"))?;
    linger(rng, 20);
    client.abort(rng.below(2) == 0);
    Ok(())
}

fn leave_failed_transaction(
    _: &TestBed,
    mut client: Client,
    rng: &mut ChaosRng,
    tag: &str,
) -> Result<(), Failure> {
    client.query("BEGIN")?;
    client.query(&format!("INSERT INTO chaos_ghost VALUES ('{tag}')"))?;
    let _ = client.query("SELECT 1 / 0");
    if rng.below(2) == 0 {
        client.quit();
    } else {
        client.abort(true);
    }
    Ok(())
}

fn leave_message(
    _: &TestBed,
    mut client: Client,
    rng: &mut ChaosRng,
    tag: &str,
) -> Result<(), Failure> {
    let mut packet = Vec::new();
    let text = format!("INSERT INTO chaos_ghost VALUES ('{tag}')");
    build::query(&mut packet, text.as_bytes());
    client.send(part(&packet, rng))?;
    linger(rng, 10);
    client.abort(rng.below(2) == 0);
    Ok(())
}

/// Disconnects and leaves session state; the next session on this server connection must find none
/// of it.
fn leave_state(
    _: &TestBed,
    mut client: Client,
    rng: &mut ChaosRng,
    tag: &str,
) -> Result<(), Failure> {
    for text in [
        format!("SET chaos.owner = '{tag}'"),
        format!("SET application_name = '{tag}'"),
        "SET search_path = pg_catalog".to_owned(),
        "SET default_transaction_isolation = 'repeatable read'".to_owned(),
        format!("SELECT pg_advisory_lock({})", 1 + rng.below(1 << 40)),
        "LISTEN chaos".to_owned(),
        "BEGIN; LISTEN chaos; COMMIT".to_owned(),
        "CREATE TEMP TABLE chaos (session bigint, id bigint, tag text)".to_owned(),
        "PREPARE own AS SELECT 'a stranger''s'".to_owned(),
        "NOTIFY chaos".to_owned(),
    ] {
        client.query(&text)?;
    }
    if rng.below(2) == 0 {
        client.quit();
    } else {
        client.abort(rng.below(2) == 0);
    }
    Ok(())
}

/// Cancels its own query, and no other: another session reports an unexpected cancel.
fn cancel(bed: &TestBed, mut client: Client, rng: &mut ChaosRng, tag: &str) -> Result<(), Failure> {
    send_query(&mut client, &format!("SELECT pg_sleep({SLEEP_S})"))?;
    sleep(Duration::from_millis(50 + rng.below(50)));
    let answer_timeout = client.set_answer_timeout(CANCEL_LIMIT);
    for _ in 0..CANCELS_MAX {
        client.cancel()?;
        match client.reply().and_then(Reply::into_result) {
            Err(Failure::Refused(_)) => break,
            // A server that has not begun the query ignores the cancel.
            Err(Failure::TimedOut(_)) => {}
            Err(other) => return Err(other),
            Ok(_) => {
                let what = format!("{tag}: a cancelled query ended as if it had not been");
                bed.observations.record_violation(Violation::Stuck, what);
                break;
            }
        }
    }
    client.set_answer_timeout(answer_timeout);
    client.query("SELECT 1")?;
    // A late cancel must have no effect.
    if rng.below(2) == 0 {
        client.cancel()?;
    }
    client.quit();
    Ok(())
}

fn leave_at_once(
    _: &TestBed,
    mut client: Client,
    _: &mut ChaosRng,
    tag: &str,
) -> Result<(), Failure> {
    send_query(&mut client, &format!("SELECT '{tag}', pg_sleep(0.05)"))?;
    client.abort(true);
    Ok(())
}

/// Disconnects during login, on a separate connection: the given one is already logged in.
fn leave_login(bed: &TestBed, other: Client, rng: &mut ChaosRng, _: &str) -> Result<(), Failure> {
    other.quit();
    let mut client = Client::connect_tcp(bed.address, bed.answer_timeout)?;
    let mut packet = Vec::new();
    build::startup(&mut packet, 0, [(&b"user"[..], &b"sbtest"[..])]);
    client.send(part(&packet, rng))?;
    linger(rng, 20);
    client.abort(rng.below(2) == 0);
    Ok(())
}

fn send_query(client: &mut Client, text: &str) -> Result<(), Failure> {
    let mut packet = Vec::new();
    build::query(&mut packet, text.as_bytes());
    client.send(&packet)
}
