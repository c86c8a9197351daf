//! Methods of writing rows: as text, prepared, in a transaction, as a file, under a lock.

use std::time::SystemTime;

use super::answer::Answer;
use super::client::{Client, Value};
use crate::chaos::failure::Failure;
use crate::chaos::observations::Violation;
use crate::chaos::writer::{Key, WriteFn, WriteMethod, Written};

type WriteContext<'a> = crate::chaos::writer::WriteContext<'a, Client>;

pub(super) const ALL: [WriteMethod<Client>; 9] = [
    whole("an insert as text", 1, text),
    whole("an insert of two rows", 2, two_rows),
    WriteMethod {
        name: "two inserts in one text",
        rows: 2,
        write: WriteFn::Parts(statements),
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
    write: fn(&mut WriteContext<'_>, &[u64]) -> Result<Key, Failure>,
) -> WriteMethod<Client> {
    let write = WriteFn::Whole(write);
    WriteMethod { name, rows, write }
}

const PREPARED: &str = "INSERT INTO chaos (session, id, tag) VALUES (?, ?, ?)";

/// Limit for another session to hold this session's lock.
const LOCK_LIMIT_S: u32 = 10;

/// Checks LAST_INSERT_ID(), which must be this session's even if other sessions have used the
/// server connection since.
fn text(context: &mut WriteContext<'_>, ids: &[u64]) -> Result<Key, Failure> {
    let written = context.session.client.query(&insert(context, ids))?;
    let key = check(context, &written, 1)?;
    context.acknowledged_at = Some(SystemTime::now());
    let tag = context.tag(ids[0]);
    let asked = format!("SELECT concat(LAST_INSERT_ID()), '{tag}'");
    // The write is already done: a failure here does not change its outcome.
    let Ok(last) = context.session.client.query(&asked) else {
        return Ok(key);
    };
    let number = key.map(|key| key.to_string()).unwrap_or_default();
    let (observations, name) = (&context.bed.observations, &context.session.name);
    observations.compare(name, &number, last.value(0, 0));
    context.check(ids[0], last.value(0, 1)).map(|()| key)
}

fn two_rows(context: &mut WriteContext<'_>, ids: &[u64]) -> Result<Key, Failure> {
    let written = context.session.client.query(&insert(context, ids))?;
    check(context, &written, 2)
}

/// Writes several statements, each in its own transaction.
fn statements(context: &mut WriteContext<'_>, ids: &[u64]) -> Vec<Written> {
    let text: Vec<String> = ids.iter().map(|id| insert(context, &[*id])).collect();
    let mut failed = context.session.client.send_query(&text.join("; ")).err();
    let mut written = Vec::new();
    for id in ids {
        let outcome = match &failed {
            // The first failure ends the text: the statements after it are not executed.
            Some(failure) => Err(failure.clone()),
            None => {
                let answer = context.session.client.answer();
                answer.and_then(|answer| check(context, &answer, 1))
            }
        };
        failed = outcome.as_ref().err().cloned();
        written.push((vec![*id], outcome));
    }
    written
}

fn transaction(context: &mut WriteContext<'_>, ids: &[u64]) -> Result<Key, Failure> {
    together(context, ids, "BEGIN", "COMMIT")
}

fn without_autocommit(context: &mut WriteContext<'_>, ids: &[u64]) -> Result<Key, Failure> {
    together(context, ids, "SET autocommit = 0", "SET autocommit = 1")
}

fn together(
    context: &mut WriteContext<'_>,
    ids: &[u64],
    begin: &str,
    end: &str,
) -> Result<Key, Failure> {
    context.session.client.query(begin)?;
    let mut key = None;
    for id in ids {
        let written = context.session.client.query(&insert(context, &[*id]))?;
        let own = check(context, &written, 1)?;
        key = key.or(own);
    }
    context.session.client.query(end)?;
    Ok(key)
}

fn prepared(context: &mut WriteContext<'_>, ids: &[u64]) -> Result<Key, Failure> {
    let tag = context.tag(ids[0]);
    execute(context, ids[0], Value::Text(&tag))
}

/// Sends long data in two parts.
fn long_data(context: &mut WriteContext<'_>, ids: &[u64]) -> Result<Key, Failure> {
    let statement = own_statement(context)?;
    let tag = context.tag(ids[0]);
    let (begin, end) = tag.split_at(tag.len() / 2);
    let client = &mut context.session.client;
    client.send_long_data(statement, 2, begin)?;
    client.send_long_data(statement, 2, end)?;
    execute(context, ids[0], Value::Sent)
}

fn execute(context: &mut WriteContext<'_>, id: u64, tag: Value<'_>) -> Result<Key, Failure> {
    let statement = own_statement(context)?;
    let number = |of: u64| Value::Number(i64::try_from(of).unwrap_or(i64::MAX));
    let values = [number(context.number), number(id), tag];
    let written = context.session.client.execute(statement, &values)?;
    check(context, &written, 1)
}

fn own_statement(
    context: &mut WriteContext<'_>,
) -> Result<evenkeel_wire::mysql::StatementId, Failure> {
    let client = &mut context.session.client;
    let statement = match client.insert {
        Some(statement) => statement,
        None => client.prepare(PREPARED)?,
    };
    client.insert = Some(statement);
    Ok(statement)
}

fn file(context: &mut WriteContext<'_>, ids: &[u64]) -> Result<Key, Failure> {
    let line = |id: &u64| format!("{}\t{id}\t{}\n", context.number, context.tag(*id));
    let lines: String = ids.iter().map(line).collect();
    let client = &mut context.session.client;
    client.send_query("LOAD DATA LOCAL INFILE 'rows' INTO TABLE chaos (session, id, tag)")?;
    let written = loop {
        match client.wait_file()? {
            Some(answer) => break answer,
            // A second time: a Galera node repeats a transaction that lost a conflict.
            None => {
                let packets = client.packets(lines.as_bytes());
                client.send_packets(&packets)?;
            }
        }
    };
    check(context, &written, ids.len() as u64).map(|_| None)
}

/// Writes under a lock of this session's own.
fn locked(context: &mut WriteContext<'_>, ids: &[u64]) -> Result<Key, Failure> {
    let lock = format!("w{}", context.number);
    let take = format!("SELECT concat(GET_LOCK('{lock}', {LOCK_LIMIT_S}))");
    let taken = context.session.client.query(&take)?;
    if taken.value(0, 0) != Some("1") {
        let name = &context.session.name;
        let what = format!("{name}: its own lock was not to be had: {:?}", taken.rows);
        context
            .bed
            .observations
            .record_violation(Violation::Stuck, what);
    }
    let written = context.session.client.query(&insert(context, ids))?;
    let key = check(context, &written, 1)?;
    context.acknowledged_at = Some(SystemTime::now());
    let release = format!("SELECT concat(RELEASE_LOCK('{lock}'))");
    if let Ok(released) = context.session.client.query(&release) {
        let (observations, name) = (&context.bed.observations, &context.session.name);
        observations.compare(name, "1", released.value(0, 0));
    }
    Ok(key)
}

fn insert(context: &WriteContext<'_>, ids: &[u64]) -> String {
    let row = |id: &u64| format!("({}, {id}, '{}')", context.number, context.tag(*id));
    let rows: Vec<String> = ids.iter().map(row).collect();
    let rows = rows.join(", ");
    format!("INSERT INTO chaos (session, id, tag) VALUES {rows}")
}

/// Checks that the reply is to an insert of `rows` rows; the final comparison checks whose rows
/// they are.
fn check(context: &WriteContext<'_>, answer: &Answer, rows: u64) -> Result<Key, Failure> {
    let came = answer.affected.to_string();
    let (observations, name) = (&context.bed.observations, &context.session.name);
    observations.compare(name, &rows.to_string(), Some(&came));
    Ok(Some(answer.insert_id).filter(|key| *key > 0))
}
