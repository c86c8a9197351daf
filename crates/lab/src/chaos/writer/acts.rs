//! The ways to write rows: as text, prepared, in a transaction, in a pipeline, by COPY.

use evenkeel_wire::postgres::build;
use evenkeel_wire::postgres::frontend::Target;

use super::Session;
use crate::chaos::client::{Client, Failure, Reply};
use crate::chaos::stage::Stage;

/// A way to write.
#[derive(Clone, Copy)]
pub(super) struct Act {
    pub(super) name: &'static str,
    /// How many rows it writes.
    pub(super) rows: u64,
    way: Way,
}

#[derive(Clone, Copy)]
enum Way {
    Text,
    Statements,
    Transaction,
    Prepared,
    Pipeline,
    Copy,
}

pub(super) const ALL: [Act; 6] = [
    act("an insert as text", 1, Way::Text),
    act("two inserts in one text", 2, Way::Statements),
    act("a transaction", 2, Way::Transaction),
    act("a prepared insert", 1, Way::Prepared),
    act("a pipeline", 3, Way::Pipeline),
    act("a COPY", 3, Way::Copy),
];

const fn act(name: &'static str, rows: u64, way: Way) -> Act {
    Act { name, rows, way }
}

const PREPARED: &[u8] = b"INSERT INTO chaos VALUES ($1::bigint, $2::bigint, $3) RETURNING tag";

/// The ids that were written together, and whether they were.
type Written = (Vec<u64>, Result<(), Failure>);

/// An act at work.
struct Doing<'a> {
    stage: &'a Stage,
    session: &'a mut Session,
    number: u64,
}

impl Act {
    /// Writes these rows; each part that may succeed without the others is told apart.
    pub(super) fn carry_out(
        self,
        stage: &Stage,
        session: &mut Session,
        number: u64,
        ids: &[u64],
    ) -> Vec<Written> {
        let mut doing = Doing {
            stage,
            session,
            number,
        };
        let outcome = match self.way {
            Way::Pipeline => return doing.pipeline(ids),
            Way::Text => doing.text(ids[0]),
            Way::Statements => doing.statements(ids),
            Way::Transaction => doing.transaction(ids),
            Way::Prepared => doing.prepared(ids[0]),
            Way::Copy => doing.copy(ids),
        };
        vec![(ids.to_vec(), outcome)]
    }
}

impl Doing<'_> {
    fn text(&mut self, id: u64) -> Result<(), Failure> {
        let reply = self.session.client.query(&self.insert(id))?;
        self.check(&reply, 0, id)
    }

    /// One implicit transaction.
    fn statements(&mut self, ids: &[u64]) -> Result<(), Failure> {
        let text: Vec<String> = ids.iter().map(|id| self.insert(*id)).collect();
        let reply = self.session.client.query(&text.join("; "))?;
        let mut rows = (0..).zip(ids);
        rows.try_for_each(|(row, id)| self.check(&reply, row, *id))
    }

    fn transaction(&mut self, ids: &[u64]) -> Result<(), Failure> {
        self.session.client.query("BEGIN")?;
        for id in ids {
            let reply = self.session.client.query(&self.insert(*id))?;
            self.check(&reply, 0, *id)?;
        }
        let reply = self.session.client.query("COMMIT")?;
        match reply.tags.first().map(String::as_str) {
            Some("COMMIT") => Ok(()),
            other => Err(Failure::Broken(format!("COMMIT was answered by {other:?}"))),
        }
    }

    fn prepared(&mut self, id: u64) -> Result<(), Failure> {
        let mut packet = Vec::new();
        if !self.session.has_prepared {
            build::parse(&mut packet, b"own", PREPARED, &[]);
        }
        let (number, key, tag) = (self.number.to_string(), id.to_string(), self.tag(id));
        let values = [number.as_bytes(), key.as_bytes(), tag.as_bytes()].map(Some);
        build::bind(&mut packet, b"", b"own", &values);
        build::execute(&mut packet, b"", 0);
        build::sync(&mut packet);
        self.session.client.send(&packet)?;
        let reply = self.session.client.reply()?.good()?;
        self.session.has_prepared = true;
        self.check(&reply, 0, id)
    }

    /// Each insert with a Sync of its own, all sent before the first is answered.
    fn pipeline(&mut self, ids: &[u64]) -> Vec<Written> {
        let mut packet = Vec::new();
        for id in ids {
            unnamed(&mut packet, &self.insert(*id));
        }
        let mut sent = self.session.client.send(&packet);
        let mut written = Vec::new();
        for id in ids {
            let one = match &sent {
                Ok(()) => self.session.client.reply().and_then(Reply::good),
                Err(failure) => Err(failure.clone()),
            };
            let outcome = one.and_then(|reply| self.check(&reply, 0, *id));
            if let Err(failure) = &outcome
                && !matches!(failure, Failure::Refused(_))
            {
                sent = Err(failure.clone());
            }
            written.push((vec![*id], outcome));
        }
        written
    }

    fn copy(&mut self, ids: &[u64]) -> Result<(), Failure> {
        let line = |id: &u64| format!("{}\t{id}\t{}\n", self.number, self.tag(*id));
        let lines: String = ids.iter().map(line).collect();
        let statement = "COPY chaos FROM STDIN";
        let reply = self.session.client.copy_in(statement, &lines)?;
        let wanted = format!("COPY {}", ids.len());
        let came = reply.tags.first().map(String::as_str);
        self.stage.notes.compare(&self.session.name, &wanted, came);
        Ok(())
    }

    fn insert(&self, id: u64) -> String {
        let (number, tag) = (self.number, self.tag(id));
        format!("INSERT INTO chaos VALUES ({number}, {id}, '{tag}') RETURNING tag /* {tag} */")
    }

    fn tag(&self, id: u64) -> String {
        format!("{}.{id}", self.session.name)
    }

    /// The reply must be to this very insert.
    fn check(&self, reply: &Reply, row: usize, id: u64) -> Result<(), Failure> {
        let notes = &self.stage.notes;
        if notes.compare(&self.session.name, &self.tag(id), reply.value(row, 0)) {
            return Ok(());
        }
        Err(Failure::Lost("the reply was another's".to_owned()))
    }
}

/// A query by the unnamed statement.
pub(super) fn extended(client: &mut Client, text: &str) -> Result<Reply, Failure> {
    let mut packet = Vec::new();
    unnamed(&mut packet, text);
    client.send(&packet)?;
    client.reply()?.good()
}

/// A query in a transaction that says that it writes nothing.
pub(super) fn read_only(client: &mut Client, text: &str) -> Result<Reply, Failure> {
    client.query("BEGIN READ ONLY")?;
    let reply = client.query(text)?;
    client.query("COMMIT")?;
    Ok(reply)
}

fn unnamed(packet: &mut Vec<u8>, text: &str) {
    build::parse(packet, b"", text.as_bytes(), &[]);
    build::bind(packet, b"", b"", &[]);
    build::describe(packet, Target::Portal(b""));
    build::execute(packet, b"", 0);
    build::sync(packet);
}
