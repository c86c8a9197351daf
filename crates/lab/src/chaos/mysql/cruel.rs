//! Clients that disconnect in the middle of a query, a file, results, a cursor or a transaction.

use std::thread::sleep;
use std::time::Duration;

use super::client::Client;
use crate::chaos::abrupt_clients::{
    AbruptAction, CANCEL_LIMIT, CANCELS_MAX, SLEEP_S, linger, part,
};
use crate::chaos::client::Client as _;
use crate::chaos::failure::{CommandOutcome, Failure};
use crate::chaos::observations::Violation;
use crate::chaos::seed::ChaosRng;
use crate::chaos::stage::TestBed;

pub(super) const ALL: [(&str, AbruptAction<Client>); 16] = [
    ("left in a query", leave_query),
    ("left in a file", leave_file),
    ("left in several results", leave_results),
    ("left in rows", leave_rows),
    ("left with a cursor", leave_cursor),
    ("left with long data", leave_long_data),
    ("left in a transaction", leave_transaction),
    ("left without autocommit", leave_without_autocommit),
    ("left in a packet", leave_packet),
    ("left with state", leave_state),
    ("renewed", make_anew),
    ("left with locked tables", leave_locked_tables),
    ("cancelled", cancel),
    ("killed", kill),
    ("left while queued", leave_at_once),
    ("left in a login", leave_login),
];

fn leave_query(
    _: &TestBed,
    mut client: Client,
    rng: &mut ChaosRng,
    tag: &str,
) -> Result<(), Failure> {
    let text = format!("SELECT '{tag}', n, IF(n = 1, SLEEP(0.2), 0) FROM chaos_numbers");
    client.send_query(&text)?;
    linger(rng, 300);
    client.abort(rng.below(2) == 0);
    Ok(())
}

/// Disconnects during a file; none of its rows may be committed.
fn leave_file(
    _: &TestBed,
    mut client: Client,
    rng: &mut ChaosRng,
    tag: &str,
) -> Result<(), Failure> {
    client.send_query("LOAD DATA LOCAL INFILE 'rows' INTO TABLE chaos_ghost (tag)")?;
    if client.wait_file()?.is_some() {
        return Err(Failure::Broken("no file is wanted".to_owned()));
    }
    let lines = format!("{tag}\n").repeat(1 + rng.below(200) as usize);
    let packets = client.packets(lines.as_bytes());
    // The end is never sent.
    let cut = packets.len() - 4 - rng.below(packets.len() as u64 / 2) as usize;
    client.send(&packets[..cut])?;
    linger(rng, 30);
    client.abort(rng.below(2) == 0);
    Ok(())
}

fn leave_results(
    bed: &TestBed,
    mut client: Client,
    rng: &mut ChaosRng,
    tag: &str,
) -> Result<(), Failure> {
    let one = |number| format!("SELECT '{tag}.{number}'");
    let texts: Vec<String> = (0..10).map(one).collect();
    client.send_query(&texts.join(";"))?;
    for number in 0..rng.below(10) {
        let answer = client.answer()?;
        let wanted = format!("{tag}.{number}");
        bed.observations.compare(tag, &wanted, answer.value(0, 0));
    }
    client.abort(rng.below(2) == 0);
    Ok(())
}

fn leave_rows(
    bed: &TestBed,
    mut client: Client,
    rng: &mut ChaosRng,
    tag: &str,
) -> Result<(), Failure> {
    let text = format!("SELECT '{tag}', a.n FROM chaos_numbers a, chaos_numbers b LIMIT 50000");
    client.send_query(&text)?;
    client.begin_rows()?;
    for _ in 0..rng.below(200) {
        let came = client.first_of_row()?;
        bed.observations.compare(tag, tag, came.as_deref());
    }
    client.abort(rng.below(2) == 0);
    Ok(())
}

fn leave_cursor(
    bed: &TestBed,
    mut client: Client,
    rng: &mut ChaosRng,
    tag: &str,
) -> Result<(), Failure> {
    let text = format!("SELECT concat('{tag}.', n) FROM chaos_numbers ORDER BY n");
    let statement = client.prepare(&text)?;
    client.open(statement)?;
    for number in 0..rng.below(5) {
        let rows = client.fetch(statement, 2)?;
        let wanted = format!("{tag}.{}", 2 * number);
        bed.observations.compare(tag, &wanted, rows.value(0, 0));
    }
    leave(client, rng);
    Ok(())
}

/// Disconnects after long data; the statement is never executed.
fn leave_long_data(
    _: &TestBed,
    mut client: Client,
    rng: &mut ChaosRng,
    tag: &str,
) -> Result<(), Failure> {
    let statement = client.prepare("INSERT INTO chaos_ghost (tag) VALUES (?)")?;
    client.send_long_data(statement, 0, tag)?;
    linger(rng, 20);
    leave(client, rng);
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
    client.query(&ghost(tag))?;
    linger(rng, 20);
    leave(client, rng);
    Ok(())
}

fn leave_without_autocommit(
    _: &TestBed,
    mut client: Client,
    rng: &mut ChaosRng,
    tag: &str,
) -> Result<(), Failure> {
    client.query("SET autocommit = 0")?;
    client.query(&ghost(tag))?;
    leave(client, rng);
    Ok(())
}

fn leave_packet(
    _: &TestBed,
    mut client: Client,
    rng: &mut ChaosRng,
    tag: &str,
) -> Result<(), Failure> {
    let mut packet = Vec::new();
    evenkeel_wire::mysql::build::query(&mut packet, ghost(tag).as_bytes());
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
    set_state(&mut client, tag)?;
    leave(client, rng);
    Ok(())
}

/// Resets its own session, which must then find no earlier state.
fn make_anew(
    bed: &TestBed,
    mut client: Client,
    rng: &mut ChaosRng,
    tag: &str,
) -> Result<(), Failure> {
    set_state(&mut client, tag)?;
    match rng.below(2) {
        0 => client.change_user()?,
        _ => client.renew()?,
    }
    let text = "SELECT coalesce(@owner, 'none'), concat(count(*)) FROM chaos_numbers";
    let seen = client.query(text)?;
    bed.observations.compare(tag, "none", seen.value(0, 0));
    bed.observations.compare(tag, "1000", seen.value(0, 1));
    leave(client, rng);
    Ok(())
}

fn set_state(client: &mut Client, tag: &str) -> Result<(), Failure> {
    // Only sessions with this number use the lock, one after another.
    let (number, _) = tag.split_once('.').unwrap_or((tag, ""));
    for text in [
        format!("SET @owner = '{tag}', @later = concat('{tag}', now())"),
        "SET time_zone = '-11:11', sql_mode = 'ANSI_QUOTES', lock_wait_timeout = 7".to_owned(),
        "SET SESSION TRANSACTION ISOLATION LEVEL READ UNCOMMITTED".to_owned(),
        "SET NAMES latin1".to_owned(),
        format!("DO GET_LOCK('chaos.{number}', 10)"),
        "CREATE TEMPORARY TABLE chaos (session bigint, id bigint, tag text)".to_owned(),
        "CREATE TEMPORARY TABLE chaos_numbers (n int)".to_owned(),
        "PREPARE own FROM 'SELECT ''a stranger''''s'''".to_owned(),
        "USE information_schema".to_owned(),
    ] {
        client.query(&text)?;
    }
    // Returns to this schema, so that the temporary tables hide the others.
    client.query("USE sbtest").map(drop)
}

fn leave_locked_tables(
    _: &TestBed,
    mut client: Client,
    rng: &mut ChaosRng,
    tag: &str,
) -> Result<(), Failure> {
    client.query("LOCK TABLES chaos_ghost READ, chaos_numbers READ")?;
    client.query(&format!("SELECT '{tag}', count(*) FROM chaos_numbers"))?;
    leave(client, rng);
    Ok(())
}

/// Cancels its own query, and no other: another session reports an unexpected cancel.
fn cancel(bed: &TestBed, mut client: Client, rng: &mut ChaosRng, tag: &str) -> Result<(), Failure> {
    client.send_query(&format!("SELECT concat(SLEEP({SLEEP_S})), '{tag}'"))?;
    sleep(Duration::from_millis(50 + rng.below(50)));
    let answer_timeout = client.set_answer_timeout(CANCEL_LIMIT);
    for _ in 0..CANCELS_MAX {
        client.kill("QUERY", bed.answer_timeout)?;
        match client.answer() {
            // MariaDB reports an interruption, MySQL a shorter sleep.
            Err(Failure::Refused(error)) if error.outcome == CommandOutcome::Cancelled => break,
            Ok(answer) if answer.value(0, 0) == Some("1") => break,
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
        client.kill("QUERY", bed.answer_timeout)?;
    }
    client.leave();
    Ok(())
}

/// Kills its own session, and no other.
fn kill(bed: &TestBed, mut client: Client, rng: &mut ChaosRng, tag: &str) -> Result<(), Failure> {
    let is_busy = rng.below(2) == 0;
    if is_busy {
        client.send_query(&format!("SELECT concat(SLEEP({SLEEP_S})), '{tag}'"))?;
        sleep(Duration::from_millis(50 + rng.below(50)));
    }
    client.kill("CONNECTION", bed.answer_timeout)?;
    client.set_answer_timeout(CANCEL_LIMIT);
    let end = match is_busy {
        true => client.answer(),
        false => client.query("SELECT 1"),
    };
    match end {
        Err(Failure::Lost(_) | Failure::Ended(_)) => Ok(()),
        // The pending command ends first, then the session.
        Err(Failure::Refused(_)) if client.query("SELECT 1").is_err() => Ok(()),
        Err(failure @ Failure::Broken(_)) => Err(failure),
        _ => {
            let what = format!("{tag}: a session that was killed goes on");
            bed.observations.record_violation(Violation::Stuck, what);
            Ok(())
        }
    }
}

fn leave_at_once(
    _: &TestBed,
    mut client: Client,
    _: &mut ChaosRng,
    tag: &str,
) -> Result<(), Failure> {
    client.send_query(&format!("SELECT '{tag}', SLEEP(0.05)"))?;
    client.abort(true);
    Ok(())
}

/// Disconnects during login, on a separate connection: the given one is already logged in.
fn leave_login(bed: &TestBed, other: Client, rng: &mut ChaosRng, _: &str) -> Result<(), Failure> {
    other.leave();
    let mut client = Client::connect_tcp(bed.address, bed.answer_timeout)?;
    if rng.below(3) > 0 {
        let mut packet = Vec::new();
        client.greeted(&mut packet)?;
        client.send(part(&packet, rng))?;
    }
    linger(rng, 20);
    client.abort(rng.below(2) == 0);
    Ok(())
}

fn ghost(tag: &str) -> String {
    format!("INSERT INTO chaos_ghost (tag) VALUES ('{tag}')")
}

/// Disconnects in a random way.
fn leave(client: Client, rng: &mut ChaosRng) {
    match rng.below(3) {
        0 => client.quit(),
        by => client.abort(by == 1),
    }
}
