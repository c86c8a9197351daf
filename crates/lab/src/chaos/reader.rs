//! A session that only reads, all the time: it should not notice what happens to the primary.

use std::thread::sleep;
use std::time::{Duration, SystemTime};

use evenkeel_wire::postgres::build;

use super::client::{Client, Failure, Reply};
use super::notes::Reading;
use super::stage::Stage;

const PAUSE: Duration = Duration::from_millis(5);
const PAUSE_AFTER_FAILURE: Duration = Duration::from_millis(10);
const PREPARED: &[u8] = b"SELECT $1::text, count(*) FROM chaos WHERE session = 1 AND id < 100";

/// Reads until the stage ends.
pub(super) fn read(stage: &Stage, number: u64) {
    let name = format!("r{number}");
    let mut nonce = 0_u64;
    while stage.goes_on() {
        let begun = SystemTime::now();
        let mut client = match connect(stage, &name) {
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
            let reply = ask(&mut client, &word, nonce.is_multiple_of(2));
            note(stage, &name, begun, reply.as_ref().err());
            match reply {
                Ok(reply) => {
                    stage.notes.compare(&name, &word, reply.value(0, 0));
                }
                Err(Failure::Refused(_)) => sleep(PAUSE_AFTER_FAILURE),
                Err(_) => break,
            }
            sleep(PAUSE);
        }
    }
}

fn connect(stage: &Stage, name: &str) -> Result<Client, Failure> {
    let mut client = stage.connect(name)?;
    let mut packet = Vec::new();
    build::parse(&mut packet, b"read", PREPARED, &[]);
    build::sync(&mut packet);
    client.send(&packet)?;
    client.reply()?.good()?;
    Ok(client)
}

fn ask(client: &mut Client, word: &str, by_statement: bool) -> Result<Reply, Failure> {
    if !by_statement {
        return client.query(&format!(
            "SELECT '{word}', count(*) FROM chaos WHERE session = 1 AND id < 100"
        ));
    }
    let mut packet = Vec::new();
    build::bind(&mut packet, b"", b"read", &[Some(word.as_bytes())]);
    build::execute(&mut packet, b"", 0);
    build::sync(&mut packet);
    client.send(&packet)?;
    client.reply()?.good()
}

fn note(stage: &Stage, name: &str, begun: SystemTime, failure: Option<&Failure>) {
    if let Some(failure) = failure {
        stage.notes.judge(name, failure);
    }
    stage.notes.content().readings.push(Reading {
        begun,
        ended: SystemTime::now(),
        failure: failure.map(Failure::to_string),
    });
}
