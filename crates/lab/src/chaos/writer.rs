//! A session that writes rows of its own in every way there is, and looks whether it sees them.

mod acts;

use std::thread::sleep;
use std::time::{Duration, SystemTime};

use super::client::{Client, Failure};
use super::notes::{Attempt, Outcome, Wrong, outcome};
use super::seed::Chance;
use super::stage::Stage;

/// Between two writes, so that servers and checks are the work and not the writers.
const PAUSE: Duration = Duration::from_millis(25);
const PAUSE_AFTER_FAILURE: Duration = Duration::from_millis(10);

/// A writer; one after the other it has many connections.
pub(super) struct Writer<'a> {
    stage: &'a Stage,
    number: u64,
    chance: Chance,
    connections: u64,
    last_id: u64,
    last_nonce: u64,
}

/// One of its connections.
struct Session {
    client: Client,
    name: String,
    /// The highest id that was acknowledged here: less must not be seen any more.
    floor: u64,
    has_prepared: bool,
}

/// Why a connection is given up.
struct Over;

impl Writer<'_> {
    pub(super) fn new(stage: &Stage, number: u64) -> Writer<'_> {
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
    pub(super) fn run(&mut self) {
        while self.stage.goes_on() {
            match self.open() {
                Ok(mut session) => while self.stage.goes_on() && self.turn(&mut session).is_ok() {},
                Err(failure) => {
                    let who = format!("writer {} logging in", self.number);
                    self.stage.notes.judge(&who, &failure);
                    self.note(Vec::new(), Outcome::Unknown(failure.to_string()));
                    sleep(PAUSE_AFTER_FAILURE);
                }
            }
        }
    }

    /// A connection with a setting that no server reports and that must follow it.
    fn open(&mut self) -> Result<Session, Failure> {
        self.connections += 1;
        let mut client = self.stage.connect(&format!("w{}", self.number))?;
        let name = format!("w{}.{}", self.number, self.connections);
        client.query(&format!("SET chaos.owner = '{name}'"))?;
        Ok(Session {
            client,
            name,
            floor: 0,
            has_prepared: false,
        })
    }

    fn turn(&mut self, session: &mut Session) -> Result<(), Over> {
        self.write(session)?;
        self.look(session)?;
        if self.chance.below(8) == 0 {
            self.check_settings(session)?;
        }
        sleep(PAUSE);
        Ok(())
    }

    /// Notes what became of each of the act's writes.
    fn write(&mut self, session: &mut Session) -> Result<(), Over> {
        let act = acts::ALL[self.chance.below(acts::ALL.len() as u64) as usize];
        let ids: Vec<u64> = (1..=act.rows).map(|more| self.last_id + more).collect();
        self.last_id += act.rows;
        let done = act.carry_out(self.stage, session, self.number, &ids);
        let mut failure = None;
        for (written, result) in done {
            let what = match result {
                Ok(()) => {
                    let highest = written.iter().copied().max();
                    session.floor = session.floor.max(highest.unwrap_or(0));
                    Outcome::Acknowledged
                }
                Err(error) => {
                    let what = outcome(&error);
                    failure = failure.or(Some(error));
                    what
                }
            };
            self.note(written, what);
        }
        failure.map_or(Ok(()), |failure| self.after(session, act.name, &failure))
    }

    /// Reads its own newest row: it must be there.
    fn look(&mut self, session: &mut Session) -> Result<(), Over> {
        let nonce = self.nonce(session);
        let text = format!(
            "SELECT '{nonce}', coalesce(max(id), 0) FROM chaos WHERE session = {}",
            self.number
        );
        let reply = match self.chance.below(3) {
            0 => session.client.query(&text),
            1 => acts::extended(&mut session.client, &text),
            _ => acts::read_only(&mut session.client, &text),
        };
        let reply = match reply {
            Ok(reply) => reply,
            Err(failure) => return self.after(session, "reading its own", &failure),
        };
        let notes = &self.stage.notes;
        notes.compare(&session.name, &nonce, reply.value(0, 0));
        let seen = reply.value(0, 1).and_then(|id| id.parse::<u64>().ok());
        if seen.is_none_or(|seen| seen < session.floor) {
            let what = format!("{} wrote {} and saw {seen:?}", session.name, session.floor);
            notes.wrong(Wrong::Stale, what);
        }
        for channel in reply.notified {
            let what = format!("{}: a notification on {channel}", session.name);
            notes.wrong(Wrong::Foreign, what);
        }
        Ok(())
    }

    fn check_settings(&mut self, session: &mut Session) -> Result<(), Over> {
        let application = format!("w{}", self.number);
        let name = session.name.clone();
        for (setting, wanted) in [("chaos.owner", &name), ("application_name", &application)] {
            match session.client.query(&format!("SHOW {setting}")) {
                Ok(reply) => {
                    let who = format!("{name}, SHOW {setting}");
                    self.stage.notes.compare(&who, wanted, reply.value(0, 0));
                }
                Err(failure) => return self.after(session, "SHOW", &failure),
            }
        }
        Ok(())
    }

    /// Whether the connection can still be used, and in what state it is.
    fn after(&self, session: &mut Session, act: &str, failure: &Failure) -> Result<(), Over> {
        let who = format!("{}, {act}", session.name);
        self.stage.notes.judge(&who, failure);
        sleep(PAUSE_AFTER_FAILURE);
        match failure {
            // Harmless where there is no transaction.
            Failure::Refused(_) => session.client.query("ROLLBACK").map(drop).map_err(|_| Over),
            _ => Err(Over),
        }
    }

    fn nonce(&mut self, session: &Session) -> String {
        self.last_nonce += 1;
        format!("{}.look.{}", session.name, self.last_nonce)
    }

    fn note(&self, ids: Vec<u64>, outcome: Outcome) {
        self.stage.notes.content().attempts.push(Attempt {
            session: self.number,
            ids,
            ended: SystemTime::now(),
            outcome,
        });
    }
}
