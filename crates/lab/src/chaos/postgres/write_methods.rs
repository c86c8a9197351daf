//! Methods of writing rows: as text, prepared, in a transaction, in a pipeline, by COPY.

use evenkeel_wire::postgres::build;
use evenkeel_wire::postgres::frontend::Target;

use super::client::Client;
use super::reply::Reply;
use crate::chaos::failure::Failure;
use crate::chaos::writer::{Key, WriteFn, WriteMethod, Written};

type WriteContext<'a> = crate::chaos::writer::WriteContext<'a, Client>;

pub(super) const ALL: [WriteMethod<Client>; 6] = [
    whole("an insert as text", 1, text),
    whole("two inserts in one text", 2, statements),
    whole("a transaction", 2, transaction),
    whole("a prepared insert", 1, prepared),
    WriteMethod {
        name: "a pipeline",
        rows: 3,
        write: WriteFn::Parts(pipeline),
    },
    whole("a COPY", 3, copy),
];

const fn whole(
    name: &'static str,
    rows: u64,
    write: fn(&mut WriteContext<'_>, &[u64]) -> Result<Key, Failure>,
) -> WriteMethod<Client> {
    let write = WriteFn::Whole(write);
    WriteMethod { name, rows, write }
}

const PREPARED: &[u8] = b"INSERT INTO chaos VALUES ($1::bigint, $2::bigint, $3) RETURNING tag";

fn text(context: &mut WriteContext<'_>, ids: &[u64]) -> Result<Key, Failure> {
    let reply = context.session.client.query(&insert(context, ids[0]))?;
    check(context, &reply, 0, ids[0])
}

/// Writes several rows in one implicit transaction.
fn statements(context: &mut WriteContext<'_>, ids: &[u64]) -> Result<Key, Failure> {
    let text: Vec<String> = ids.iter().map(|id| insert(context, *id)).collect();
    let reply = context.session.client.query(&text.join("; "))?;
    let mut rows = (0..).zip(ids);
    rows.try_for_each(|(row, id)| check(context, &reply, row, *id).map(drop))?;
    Ok(None)
}

fn transaction(context: &mut WriteContext<'_>, ids: &[u64]) -> Result<Key, Failure> {
    context.session.client.query("BEGIN")?;
    for id in ids {
        let reply = context.session.client.query(&insert(context, *id))?;
        check(context, &reply, 0, *id)?;
    }
    let reply = context.session.client.query("COMMIT")?;
    match reply.tags.first().map(String::as_str) {
        Some("COMMIT") => Ok(None),
        other => Err(Failure::Broken(format!("COMMIT was answered by {other:?}"))),
    }
}

fn prepared(context: &mut WriteContext<'_>, ids: &[u64]) -> Result<Key, Failure> {
    let mut packet = Vec::new();
    if !context.session.client.has_insert {
        build::parse(&mut packet, b"own", PREPARED, &[]);
    }
    let id = ids[0];
    let (number, key, tag) = (context.number.to_string(), id.to_string(), context.tag(id));
    let values = [number.as_bytes(), key.as_bytes(), tag.as_bytes()].map(Some);
    build::bind(&mut packet, b"", b"own", &values);
    build::execute(&mut packet, b"", 0);
    build::sync(&mut packet);
    context.session.client.send(&packet)?;
    let reply = context.session.client.reply()?.into_result()?;
    context.session.client.has_insert = true;
    check(context, &reply, 0, id)
}

/// Sends several inserts, each with its own Sync, before the first answer.
fn pipeline(context: &mut WriteContext<'_>, ids: &[u64]) -> Vec<Written> {
    let mut packet = Vec::new();
    for id in ids {
        unnamed(&mut packet, &insert(context, *id));
    }
    let mut sent = context.session.client.send(&packet);
    let mut written = Vec::new();
    for id in ids {
        let one = match &sent {
            Ok(()) => context.session.client.reply().and_then(Reply::into_result),
            Err(failure) => Err(failure.clone()),
        };
        let outcome = one.and_then(|reply| check(context, &reply, 0, *id));
        if let Err(failure) = &outcome
            && !matches!(failure, Failure::Refused(_))
        {
            sent = Err(failure.clone());
        }
        written.push((vec![*id], outcome));
    }
    written
}

fn copy(context: &mut WriteContext<'_>, ids: &[u64]) -> Result<Key, Failure> {
    let line = |id: &u64| format!("{}\t{id}\t{}\n", context.number, context.tag(*id));
    let lines: String = ids.iter().map(line).collect();
    let reply = context
        .session
        .client
        .copy_in("COPY chaos FROM STDIN", &lines)?;
    let wanted = format!("COPY {}", ids.len());
    let came = reply.tags.first().map(String::as_str);
    context
        .bed
        .observations
        .compare(&context.session.name, &wanted, came);
    Ok(None)
}

fn insert(context: &WriteContext<'_>, id: u64) -> String {
    let (number, tag) = (context.number, context.tag(id));
    format!("INSERT INTO chaos VALUES ({number}, {id}, '{tag}') RETURNING tag /* {tag} */")
}

/// Checks that the reply is to this insert.
fn check(context: &WriteContext<'_>, reply: &Reply, row: usize, id: u64) -> Result<Key, Failure> {
    context.check(id, reply.value(row, 0)).map(|()| None)
}

/// Runs a query with the unnamed statement.
pub(super) fn extended(client: &mut Client, text: &str) -> Result<Reply, Failure> {
    let mut packet = Vec::new();
    unnamed(&mut packet, text);
    client.send(&packet)?;
    client.reply()?.into_result()
}

fn unnamed(packet: &mut Vec<u8>, text: &str) {
    build::parse(packet, b"", text.as_bytes(), &[]);
    build::bind(packet, b"", b"", &[]);
    build::describe(packet, Target::Portal(b""));
    build::execute(packet, b"", 0);
    build::sync(packet);
}
