//! Runs a session that only reads: changes of the primary should not affect it.

use std::thread::sleep;
use std::time::{Duration, SystemTime};

use super::client::{Client, READ, Rows};
use super::failure::Failure;
use super::observations::Reading;
use super::stage::TestBed;

const PAUSE: Duration = Duration::from_millis(5);
const PAUSE_AFTER_FAILURE: Duration = Duration::from_millis(10);

/// Reads until the stage ends.
pub(super) fn read<C: Client>(stage: &TestBed, number: u64) {
    let name = format!("r{number}");
    let mut nonce = 0_u64;
    while stage.goes_on() {
        let begun = SystemTime::now();
        let mut client = match connect::<C>(stage, &name) {
            Ok(client) => client,
            Err(failure) => {
                note(stage, &name, begun, Some(&failure));
                sleep(PAUSE_AFTER_FAILURE);
                continue;
            }
        };
        while stage.goes_on() {
            nonce += 1;
            let word = format!("{name}.{nonce}");
            let begun = SystemTime::now();
            let rows = ask(&mut client, &word, nonce.is_multiple_of(2));
            note(stage, &name, begun, rows.as_ref().err());
            match rows {
                Ok(rows) => {
                    stage.notes.compare(&name, &word, rows.value(0, 0));
                }
                Err(Failure::Refused(_)) => sleep(PAUSE_AFTER_FAILURE),
                Err(_) => break,
            }
            sleep(PAUSE);
        }
    }
}

fn connect<C: Client>(stage: &TestBed, name: &str) -> Result<C, Failure> {
    let mut client: C = stage.connect(name)?;
    client.prepare_read()?;
    Ok(client)
}

fn ask<C: Client>(client: &mut C, word: &str, by_statement: bool) -> Result<Rows, Failure> {
    match by_statement {
        true => client.read(word),
        false => client.ask(&format!("SELECT '{word}', {READ}")),
    }
}

fn note(stage: &TestBed, name: &str, begun: SystemTime, failure: Option<&Failure>) {
    if let Some(failure) = failure {
        stage.notes.judge(name, failure);
    }
    stage.notes.content().readings.push(Reading {
        begun,
        ended: SystemTime::now(),
        failure: failure.map(Failure::to_string),
    });
}
