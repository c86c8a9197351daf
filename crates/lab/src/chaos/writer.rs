//! Runs a session that writes rows by every method and checks that it sees them.

use std::thread::sleep;
use std::time::{Duration, SystemTime};

use super::client::{Client, Rows};
use super::failure::Failure;
use super::observations::{Attempt, MissedWrite, Outcome, Violation, outcome};
use super::seed::ChaosRng;
use super::stage::TestBed;

/// Pause between two writes, so that the servers and checks are the load and not the writers.
const PAUSE: Duration = Duration::from_millis(25);
const PAUSE_AFTER_FAILURE: Duration = Duration::from_millis(10);

/// A method of writing rows.
pub(super) struct WriteMethod<C: 'static> {
    pub(super) name: &'static str,
    /// Number of rows it writes.
    pub(super) rows: u64,
    pub(super) write: WriteFn<C>,
}

pub(super) enum WriteFn<C: 'static> {
    /// Writes all rows or none.
    Whole(fn(&mut WriteContext<'_, C>, &[u64]) -> Result<Key, Failure>),
    /// Writes parts that may succeed independently.
    Parts(fn(&mut WriteContext<'_, C>, &[u64]) -> Vec<Written>),
}

/// Number that the server assigned to the first row, if it reports one.
pub(super) type Key = Option<u64>;

/// Ids that were written together, and the result.
pub(super) type Written = (Vec<u64>, Result<Key, Failure>);

/// A write in progress.
pub(super) struct WriteContext<'a, C> {
    pub(super) bed: &'a TestBed,
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
    bed: &'a TestBed,
    number: u64,
    rng: ChaosRng,
    connections: u64,
    last_id: u64,
    last_nonce: u64,
}

/// The connection is unusable and must be closed.
struct Unusable;

impl<C> WriteMethod<C> {
    /// Writes these rows; returns a result for each independent part.
    fn carry_out(&self, context: &mut WriteContext<'_, C>, ids: &[u64]) -> Vec<Written> {
        match self.write {
            WriteFn::Whole(write) => vec![(ids.to_vec(), write(context, ids))],
            WriteFn::Parts(write) => write(context, ids),
        }
    }
}

impl<C> WriteContext<'_, C> {
    /// Returns the tag of a row, which identifies its writer.
    pub(super) fn tag(&self, id: u64) -> String {
        format!("{}.{id}", self.session.name)
    }

    /// Checks that the answer is about this row.
    pub(super) fn check(&self, id: u64, received: Option<&str>) -> Result<(), Failure> {
        let observations = &self.bed.observations;
        if observations.compare(&self.session.name, &self.tag(id), received) {
            return Ok(());
        }
        Err(Failure::Lost(
            "the reply belonged to another session".to_owned(),
        ))
    }
}

impl Writer<'_> {
    pub(super) fn new(bed: &TestBed, number: u64) -> Writer<'_> {
        Writer {
            bed,
            number,
            rng: bed.rng(number),
            connections: 0,
            last_id: 0,
            last_nonce: 0,
        }
    }

    /// Writes until the test bed ends.
    pub(super) fn run<C: Client>(&mut self) {
        while self.bed.is_running() {
            let started = SystemTime::now();
            let opened = self.open::<C>();
            let name = format!("w{}.{}", self.number, self.connections);
            self.bed
                .observations
                .record_step(&name, "logging in", started);
            match opened {
                Ok(mut session) => {
                    while self.bed.is_running() && self.run_round(&mut session).is_ok() {}
                }
                Err(failure) => {
                    let who = format!("writer {} logging in", self.number);
                    self.bed.observations.record_failure(&who, &failure);
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
        let mut client: C = self.bed.connect(&format!("w{}", self.number))?;
        let name = format!("w{}.{}", self.number, self.connections);
        client.mark(&name)?;
        Ok(Session {
            client,
            name,
            floor: 0,
        })
    }

    fn run_round<C: Client>(&mut self, session: &mut Session<C>) -> Result<(), Unusable> {
        self.write(session)?;
        self.read_own(session)?;
        if self.rng.below(8) == 0 {
            self.check_marks(session)?;
        }
        sleep(PAUSE);
        Ok(())
    }

    /// Writes and records the outcome of each part.
    fn write<C: Client>(&mut self, session: &mut Session<C>) -> Result<(), Unusable> {
        let write_methods = C::write_methods();
        let method = &write_methods[self.rng.below(write_methods.len() as u64) as usize];
        let ids: Vec<u64> = (1..=method.rows).map(|more| self.last_id + more).collect();
        self.last_id += method.rows;
        let mut context = WriteContext {
            bed: self.bed,
            session,
            number: self.number,
            acknowledged_at: None,
        };
        let started = SystemTime::now();
        let done = method.carry_out(&mut context, &ids);
        let ended = context.acknowledged_at.unwrap_or_else(SystemTime::now);
        self.bed
            .observations
            .record_step(&session.name, method.name, started);
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
        failure.map_or(Ok(()), |failure| self.after(session, method.name, &failure))
    }

    /// Reads the session's newest row, which must exist.
    fn read_own<C: Client>(&mut self, session: &mut Session<C>) -> Result<(), Unusable> {
        let nonce = self.nonce(&session.name);
        let text = format!(
            "SELECT '{nonce}', concat(coalesce(max(id), 0)), concat({}) FROM chaos \
             WHERE session = {}",
            C::PORT,
            self.number
        );
        let started = SystemTime::now();
        let (what, rows) = match self.rng.below(3) {
            0 => ("a look", session.client.run_query(&text)),
            1 => ("a prepared look", session.client.run_prepared(&text)),
            _ => ("a READ ONLY look", session.client.run_read_only(&text)),
        };
        self.bed
            .observations
            .record_step(&session.name, what, started);
        let rows = match rows {
            Ok(rows) => rows,
            Err(failure) => return self.after(session, "reading its own", &failure),
        };
        let observations = &self.bed.observations;
        observations.compare(&session.name, &nonce, rows.value(0, 0));
        self.check_own(session, format!("{nonce} {what}"), &rows);
        for stray in session.client.unsolicited() {
            observations.record_violation(Violation::Foreign, format!("{}: {stray}", session.name));
        }
        Ok(())
    }

    /// Records a missing row; whether it is stale depends on what the cluster has kept.
    fn check_own<C>(&self, session: &Session<C>, asked: String, rows: &Rows) {
        let seen = rows.value(0, 1).and_then(|id| id.parse::<u64>().ok());
        if seen.is_none_or(|seen| seen < session.floor) {
            let missed = MissedWrite {
                session: self.number,
                asked,
                ended: SystemTime::now(),
                wrote: session.floor,
                seen,
                port: rows.value(0, 2).map(str::to_owned),
            };
            self.bed.observations.record_missed_write(missed);
        }
    }

    fn check_marks<C: Client>(&mut self, session: &mut Session<C>) -> Result<(), Unusable> {
        let started = SystemTime::now();
        let marks = session.client.marks(&session.name);
        self.bed
            .observations
            .record_step(&session.name, "its settings", started);
        match marks {
            Ok(marks) => {
                for (wanted, received) in marks {
                    let who = format!("{}, a setting", session.name);
                    self.bed
                        .observations
                        .compare(&who, &wanted, received.as_deref());
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
        method: &str,
        failure: &Failure,
    ) -> Result<(), Unusable> {
        let who = format!("{}, {method}", session.name);
        self.bed.observations.record_failure(&who, failure);
        sleep(PAUSE_AFTER_FAILURE);
        if !matches!(failure, Failure::Refused(_)) {
            return Err(Unusable);
        }
        let mut texts = C::AFTER_FAILURE.iter();
        let done = texts.try_for_each(|text| session.client.run_query(text).map(drop));
        done.map_err(|_| Unusable)
    }

    fn nonce(&mut self, name: &str) -> String {
        self.last_nonce += 1;
        format!("{name}.look.{}", self.last_nonce)
    }

    fn note(&self, ids: Vec<u64>, key: Key, (outcome, ended): (Outcome, SystemTime)) {
        self.bed.observations.content().attempts.push(Attempt {
            session: self.number,
            ids,
            key,
            ended,
            outcome,
        });
    }
}
