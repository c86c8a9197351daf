//! Runs a session that only reads: changes of the primary should not affect it.

use std::thread::sleep;
use std::time::{Duration, SystemTime};

use super::client::{Client, READ, Rows};
use super::failure::Failure;
use super::observations::Reading;
use super::stage::TestBed;

const PAUSE: Duration = Duration::from_millis(5);
const PAUSE_AFTER_FAILURE: Duration = Duration::from_millis(10);

/// Reads until the test bed ends.
pub(super) fn read<C: Client>(bed: &TestBed, number: u64) {
    let name = format!("r{number}");
    let mut nonce = 0_u64;
    while bed.is_running() {
        let started = SystemTime::now();
        let mut client = match connect::<C>(bed, &name) {
            Ok(client) => client,
            Err(failure) => {
                note(bed, &name, started, Some(&failure));
                sleep(PAUSE_AFTER_FAILURE);
                continue;
            }
        };
        while bed.is_running() {
            nonce += 1;
            let word = format!("{name}.{nonce}");
            let started = SystemTime::now();
            let rows = query(&mut client, &word, nonce.is_multiple_of(2));
            note(bed, &name, started, rows.as_ref().err());
            match rows {
                Ok(rows) => {
                    bed.observations.compare(&name, &word, rows.value(0, 0));
                }
                Err(Failure::Refused(_)) => sleep(PAUSE_AFTER_FAILURE),
                Err(_) => break,
            }
            sleep(PAUSE);
        }
    }
}

fn connect<C: Client>(bed: &TestBed, name: &str) -> Result<C, Failure> {
    let mut client: C = bed.connect(name)?;
    client.prepare_read()?;
    Ok(client)
}

fn query<C: Client>(client: &mut C, word: &str, by_statement: bool) -> Result<Rows, Failure> {
    match by_statement {
        true => client.read(word),
        false => client.run_query(&format!("SELECT '{word}', {READ}")),
    }
}

fn note(bed: &TestBed, name: &str, started: SystemTime, failure: Option<&Failure>) {
    if let Some(failure) = failure {
        bed.observations.record_failure(name, failure);
    }
    bed.observations.content().readings.push(Reading {
        started,
        ended: SystemTime::now(),
        failure: failure.map(Failure::to_string),
    });
}
