//! Methods of writing rows: as text, prepared, in a transaction, as a file, under a lock.

use std::time::SystemTime;

use super::answer::Answer;
use super::client::{Client, Value};
use crate::chaos::failure::Failure;
use crate::chaos::observations::Wrong;
use crate::chaos::writer::{Act, Key, Way, Written};

type Doing<'a> = crate::chaos::writer::Doing<'a, Client>;

pub(super) const ALL: [Act<Client>; 9] = [
    whole("an insert as text", 1, text),
    whole("an insert of two rows", 2, two_rows),
    Act {
        name: "two inserts in one text",
        rows: 2,
        way: Way::Parts(statements),
    },
    whole("a transaction", 2, transaction),
    whole("a transaction without autocommit", 2, without_autocommit),
    whole("a prepared insert", 1, prepared),
    whole("a prepared insert of long data", 1, long_data),
    whole("a file", 3, file),
    whole("an insert under a lock", 1, locked),
];

const fn whole(
    name: &'static str,
    rows: u64,
    way: fn(&mut Doing<'_>, &[u64]) -> Result<Key, Failure>,
) -> Act<Client> {
    let way = Way::Whole(way);
    Act { name, rows, way }
}

const PREPARED: &str = "INSERT INTO chaos (session, id, tag) VALUES (?, ?, ?)";

/// Limit for another session to hold this session's lock.
const LOCK_LIMIT_S: u32 = 10;

/// Checks LAST_INSERT_ID(), which must be this session's even if other sessions have used the
/// server connection since.
fn text(doing: &mut Doing<'_>, ids: &[u64]) -> Result<Key, Failure> {
    let written = doing.session.client.query(&insert(doing, ids))?;
    let key = check(doing, &written, 1)?;
    doing.acknowledged_at = Some(SystemTime::now());
    let tag = doing.tag(ids[0]);
    let asked = format!("SELECT concat(LAST_INSERT_ID()), '{tag}'");
    // The write is already done: a failure here does not change its outcome.
    let Ok(last) = doing.session.client.query(&asked) else {
        return Ok(key);
    };
    let number = key.map(|key| key.to_string()).unwrap_or_default();
    let (notes, name) = (&doing.stage.notes, &doing.session.name);
    notes.compare(name, &number, last.value(0, 0));
    doing.check(ids[0], last.value(0, 1)).map(|()| key)
}

fn two_rows(doing: &mut Doing<'_>, ids: &[u64]) -> Result<Key, Failure> {
    let written = doing.session.client.query(&insert(doing, ids))?;
    check(doing, &written, 2)
}

/// Writes several statements, each in its own transaction.
fn statements(doing: &mut Doing<'_>, ids: &[u64]) -> Vec<Written> {
    let text: Vec<String> = ids.iter().map(|id| insert(doing, &[*id])).collect();
    let mut failed = doing.session.client.send_query(&text.join("; ")).err();
    let mut written = Vec::new();
    for id in ids {
        let outcome = match &failed {
            // The first failure ends the text: the statements after it are not executed.
            Some(failure) => Err(failure.clone()),
            None => {
                let answer = doing.session.client.answer();
                answer.and_then(|answer| check(doing, &answer, 1))
            }
        };
        failed = outcome.as_ref().err().cloned();
        written.push((vec![*id], outcome));
    }
    written
}

fn transaction(doing: &mut Doing<'_>, ids: &[u64]) -> Result<Key, Failure> {
    together(doing, ids, "BEGIN", "COMMIT")
}

fn without_autocommit(doing: &mut Doing<'_>, ids: &[u64]) -> Result<Key, Failure> {
    together(doing, ids, "SET autocommit = 0", "SET autocommit = 1")
}

fn together(doing: &mut Doing<'_>, ids: &[u64], begin: &str, end: &str) -> Result<Key, Failure> {
    doing.session.client.query(begin)?;
    let mut key = None;
    for id in ids {
        let written = doing.session.client.query(&insert(doing, &[*id]))?;
        let own = check(doing, &written, 1)?;
        key = key.or(own);
    }
    doing.session.client.query(end)?;
    Ok(key)
}

fn prepared(doing: &mut Doing<'_>, ids: &[u64]) -> Result<Key, Failure> {
    let tag = doing.tag(ids[0]);
    execute(doing, ids[0], Value::Text(&tag))
}

/// Sends long data in two parts.
fn long_data(doing: &mut Doing<'_>, ids: &[u64]) -> Result<Key, Failure> {
    let statement = own_statement(doing)?;
    let tag = doing.tag(ids[0]);
    let (begin, end) = tag.split_at(tag.len() / 2);
    let client = &mut doing.session.client;
    client.send_long_data(statement, 2, begin)?;
    client.send_long_data(statement, 2, end)?;
    execute(doing, ids[0], Value::Sent)
}

fn execute(doing: &mut Doing<'_>, id: u64, tag: Value<'_>) -> Result<Key, Failure> {
    let statement = own_statement(doing)?;
    let number = |of: u64| Value::Number(i64::try_from(of).unwrap_or(i64::MAX));
    let values = [number(doing.number), number(id), tag];
    let written = doing.session.client.execute(statement, &values)?;
    check(doing, &written, 1)
}

fn own_statement(doing: &mut Doing<'_>) -> Result<evenkeel_wire::mysql::StatementId, Failure> {
    let client = &mut doing.session.client;
    let statement = match client.insert {
        Some(statement) => statement,
        None => client.prepare(PREPARED)?,
    };
    client.insert = Some(statement);
    Ok(statement)
}

fn file(doing: &mut Doing<'_>, ids: &[u64]) -> Result<Key, Failure> {
    let line = |id: &u64| format!("{}\t{id}\t{}\n", doing.number, doing.tag(*id));
    let lines: String = ids.iter().map(line).collect();
    let client = &mut doing.session.client;
    client.send_query("LOAD DATA LOCAL INFILE 'rows' INTO TABLE chaos (session, id, tag)")?;
    let written = loop {
        match client.wait_file()? {
            Some(answer) => break answer,
            // A second time: a Galera node repeats a transaction that lost a conflict.
            None => {
                let packets = client.packets(lines.as_bytes());
                client.say(&packets)?;
            }
        }
    };
    check(doing, &written, ids.len() as u64).map(|_| None)
}

/// Writes under a lock of this session's own.
fn locked(doing: &mut Doing<'_>, ids: &[u64]) -> Result<Key, Failure> {
    let lock = format!("w{}", doing.number);
    let take = format!("SELECT concat(GET_LOCK('{lock}', {LOCK_LIMIT_S}))");
    let taken = doing.session.client.query(&take)?;
    if taken.value(0, 0) != Some("1") {
        let name = &doing.session.name;
        let what = format!("{name}: its own lock was not to be had: {:?}", taken.rows);
        doing.stage.notes.wrong(Wrong::Stuck, what);
    }
    let written = doing.session.client.query(&insert(doing, ids))?;
    let key = check(doing, &written, 1)?;
    doing.acknowledged_at = Some(SystemTime::now());
    let release = format!("SELECT concat(RELEASE_LOCK('{lock}'))");
    if let Ok(released) = doing.session.client.query(&release) {
        let (notes, name) = (&doing.stage.notes, &doing.session.name);
        notes.compare(name, "1", released.value(0, 0));
    }
    Ok(key)
}

fn insert(doing: &Doing<'_>, ids: &[u64]) -> String {
    let row = |id: &u64| format!("({}, {id}, '{}')", doing.number, doing.tag(*id));
    let rows: Vec<String> = ids.iter().map(row).collect();
    let rows = rows.join(", ");
    format!("INSERT INTO chaos (session, id, tag) VALUES {rows}")
}

/// Checks that the reply is to an insert of `rows` rows; the final comparison checks whose rows
/// they are.
fn check(doing: &Doing<'_>, answer: &Answer, rows: u64) -> Result<Key, Failure> {
    let came = answer.affected.to_string();
    let (notes, name) = (&doing.stage.notes, &doing.session.name);
    notes.compare(name, &rows.to_string(), Some(&came));
    Ok(Some(answer.insert_id).filter(|key| *key > 0))
}
