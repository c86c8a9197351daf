//! Runs a session that writes rows by every method and checks that it sees them.

use std::thread::sleep;
use std::time::{Duration, SystemTime};

use super::client::{Client, Rows};
use super::failure::Failure;
use super::observations::{Attempt, Outcome, Sight, Wrong, outcome};
use super::seed::Chance;
use super::stage::TestBed;

/// Pause between two writes, so that the servers and checks are the load and not the writers.
const PAUSE: Duration = Duration::from_millis(25);
const PAUSE_AFTER_FAILURE: Duration = Duration::from_millis(10);

/// A method of writing rows.
pub(super) struct Act<C: 'static> {
    pub(super) name: &'static str,
    /// Number of rows it writes.
    pub(super) rows: u64,
    pub(super) way: Way<C>,
}

pub(super) enum Way<C: 'static> {
    /// Writes all rows or none.
    Whole(fn(&mut Doing<'_, C>, &[u64]) -> Result<Key, Failure>),
    /// Writes parts that may succeed independently.
    Parts(fn(&mut Doing<'_, C>, &[u64]) -> Vec<Written>),
}

/// Number that the server assigned to the first row, if it reports one.
pub(super) type Key = Option<u64>;

/// Ids that were written together, and the result.
pub(super) type Written = (Vec<u64>, Result<Key, Failure>);

/// A write in progress.
pub(super) struct Doing<'a, C> {
    pub(super) stage: &'a TestBed,
    pub(super) session: &'a mut Session<C>,
    pub(super) number: u64,
    /// Time of the acknowledgement, if the method continues after it.
    pub(super) acknowledged_at: Option<SystemTime>,
}

/// One of a writer's connections.
pub(super) struct Session<C> {
    pub(super) client: C,
    pub(super) name: String,
    /// Highest id that was acknowledged here: later reads must not see less.
    floor: u64,
}

/// A writer, which uses many connections in succession.
pub(super) struct Writer<'a> {
    stage: &'a TestBed,
    number: u64,
    chance: Chance,
    connections: u64,
    last_id: u64,
    last_nonce: u64,
}

/// The connection is unusable and must be closed.
struct Over;

impl<C> Act<C> {
    /// Writes these rows; returns a result for each independent part.
    fn carry_out(&self, doing: &mut Doing<'_, C>, ids: &[u64]) -> Vec<Written> {
        match self.way {
            Way::Whole(way) => vec![(ids.to_vec(), way(doing, ids))],
            Way::Parts(way) => way(doing, ids),
        }
    }
}

impl<C> Doing<'_, C> {
    /// Returns the tag of a row, which identifies its writer.
    pub(super) fn tag(&self, id: u64) -> String {
        format!("{}.{id}", self.session.name)
    }

    /// Checks that the answer is about this row.
    pub(super) fn check(&self, id: u64, came: Option<&str>) -> Result<(), Failure> {
        let notes = &self.stage.notes;
        if notes.compare(&self.session.name, &self.tag(id), came) {
            return Ok(());
        }
        Err(Failure::Lost(
            "the reply belonged to another session".to_owned(),
        ))
    }
}

impl Writer<'_> {
    pub(super) fn new(stage: &TestBed, number: u64) -> Writer<'_> {
        Writer {
            stage,
            number,
            chance: stage.chance(number),
            connections: 0,
            last_id: 0,
            last_nonce: 0,
        }
    }

    /// Writes until the stage ends.
    pub(super) fn run<C: Client>(&mut self) {
        while self.stage.goes_on() {
            let begun = SystemTime::now();
            let opened = self.open::<C>();
            let name = format!("w{}.{}", self.number, self.connections);
            self.stage.notes.took(&name, "logging in", begun);
            match opened {
                Ok(mut session) => while self.stage.goes_on() && self.turn(&mut session).is_ok() {},
                Err(failure) => {
                    let who = format!("writer {} logging in", self.number);
                    self.stage.notes.judge(&who, &failure);
                    let outcome = Outcome::Unknown(failure.to_string());
                    self.note(Vec::new(), None, (outcome, SystemTime::now()));
                    sleep(PAUSE_AFTER_FAILURE);
                }
            }
        }
    }

    /// Opens a connection with settings that must follow it.
    fn open<C: Client>(&mut self) -> Result<Session<C>, Failure> {
        self.connections += 1;
        let mut client: C = self.stage.connect(&format!("w{}", self.number))?;
        let name = format!("w{}.{}", self.number, self.connections);
        client.mark(&name)?;
        Ok(Session {
            client,
            name,
            floor: 0,
        })
    }

    fn turn<C: Client>(&mut self, session: &mut Session<C>) -> Result<(), Over> {
        self.write(session)?;
        self.look(session)?;
        if self.chance.below(8) == 0 {
            self.check_marks(session)?;
        }
        sleep(PAUSE);
        Ok(())
    }

    /// Writes and records the outcome of each part.
    fn write<C: Client>(&mut self, session: &mut Session<C>) -> Result<(), Over> {
        let acts = C::acts();
        let act = &acts[self.chance.below(acts.len() as u64) as usize];
        let ids: Vec<u64> = (1..=act.rows).map(|more| self.last_id + more).collect();
        self.last_id += act.rows;
        let mut doing = Doing {
            stage: self.stage,
            session,
            number: self.number,
            acknowledged_at: None,
        };
        let begun = SystemTime::now();
        let done = act.carry_out(&mut doing, &ids);
        let ended = doing.acknowledged_at.unwrap_or_else(SystemTime::now);
        self.stage.notes.took(&session.name, act.name, begun);
        let mut failure = None;
        for (written, result) in done {
            match result {
                Ok(key) => {
                    let highest = written.iter().copied().max();
                    session.floor = session.floor.max(highest.unwrap_or(0));
                    self.note(written, key, (Outcome::Acknowledged, ended));
                }
                Err(error) => {
                    self.note(written, None, (outcome(&error), ended));
                    failure = failure.or(Some(error));
                }
            }
        }
        failure.map_or(Ok(()), |failure| self.after(session, act.name, &failure))
    }

    /// Reads the session's newest row, which must exist.
    fn look<C: Client>(&mut self, session: &mut Session<C>) -> Result<(), Over> {
        let nonce = self.nonce(&session.name);
        let text = format!(
            "SELECT '{nonce}', concat(coalesce(max(id), 0)), concat({}) FROM chaos \
             WHERE session = {}",
            C::PORT,
            self.number
        );
        let begun = SystemTime::now();
        let (what, rows) = match self.chance.below(3) {
            0 => ("a look", session.client.ask(&text)),
            1 => ("a prepared look", session.client.ask_prepared(&text)),
            _ => ("a READ ONLY look", session.client.ask_read_only(&text)),
        };
        self.stage.notes.took(&session.name, what, begun);
        let rows = match rows {
            Ok(rows) => rows,
            Err(failure) => return self.after(session, "reading its own", &failure),
        };
        let notes = &self.stage.notes;
        notes.compare(&session.name, &nonce, rows.value(0, 0));
        self.see(session, format!("{nonce} {what}"), &rows);
        for stray in session.client.strays() {
            notes.wrong(Wrong::Foreign, format!("{}: {stray}", session.name));
        }
        Ok(())
    }

    /// Records a missing row; whether it is stale depends on what the cluster has kept.
    fn see<C>(&self, session: &Session<C>, asked: String, rows: &Rows) {
        let seen = rows.value(0, 1).and_then(|id| id.parse::<u64>().ok());
        if seen.is_none_or(|seen| seen < session.floor) {
            let sight = Sight {
                session: self.number,
                asked,
                ended: SystemTime::now(),
                wrote: session.floor,
                seen,
                port: rows.value(0, 2).map(str::to_owned),
            };
            self.stage.notes.unseen(sight);
        }
    }

    fn check_marks<C: Client>(&mut self, session: &mut Session<C>) -> Result<(), Over> {
        let begun = SystemTime::now();
        let marks = session.client.marks(&session.name);
        self.stage.notes.took(&session.name, "its settings", begun);
        match marks {
            Ok(marks) => {
                for (wanted, came) in marks {
                    let who = format!("{}, a setting", session.name);
                    self.stage.notes.compare(&who, &wanted, came.as_deref());
                }
                Ok(())
            }
            Err(failure) => self.after(session, "asking for settings", &failure),
        }
    }

    /// Checks whether the connection is still usable, and its transaction state.
    fn after<C: Client>(
        &self,
        session: &mut Session<C>,
        act: &str,
        failure: &Failure,
    ) -> Result<(), Over> {
        let who = format!("{}, {act}", session.name);
        self.stage.notes.judge(&who, failure);
        sleep(PAUSE_AFTER_FAILURE);
        if !matches!(failure, Failure::Refused(_)) {
            return Err(Over);
        }
        let mut texts = C::AFTER_FAILURE.iter();
        let done = texts.try_for_each(|text| session.client.ask(text).map(drop));
        done.map_err(|_| Over)
    }

    fn nonce(&mut self, name: &str) -> String {
        self.last_nonce += 1;
        format!("{name}.look.{}", self.last_nonce)
    }

    fn note(&self, ids: Vec<u64>, key: Key, (outcome, ended): (Outcome, SystemTime)) {
        self.stage.notes.content().attempts.push(Attempt {
            session: self.number,
            ids,
            key,
            ended,
            outcome,
        });
    }
}
