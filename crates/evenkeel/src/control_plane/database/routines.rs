//! Reads the definitions of a MySQL service's routines, views and tables, periodically and after
//! changes.

use std::sync::Arc;
use std::time::Duration;

use evenkeel_engine::clock::now_us;
use evenkeel_monitor::probe::AccountSource;
use evenkeel_monitor::{RoutineReader, WatchError};
use evenkeel_proxy::server_info::ServerInfo;
use evenkeel_sql::routines::Routines;
use tokio::sync::watch;
use tokio::time::{Instant, timeout_at};

use super::membership::{Membership, MonitoredServer};

/// Interval between two readings: other clients change definitions too, without passing through
/// Evenkeel.
const INTERVAL: Duration = Duration::from_secs(60);

/// Delay after a change made by a session of Evenkeel: several changes usually come together.
const CHANGED_INTERVAL: Duration = Duration::from_secs(1);

/// Intervals after a failed reading: regular, and the shortest one, if there is a new primary or a
/// change.
const AWAY_INTERVAL: Duration = Duration::from_secs(2);
const AWAY_PAUSE: Duration = Duration::from_millis(100);

/// Minimum rest after a reading, as a multiple of its duration, so that slow readings are repeated
/// less often.
const REST: u32 = 20;

/// Time limit of one reading.
const LIMIT: Duration = Duration::from_secs(60);

/// Task that reads the definitions from the preferred server.
pub(super) struct RoutineTask {
    pub(super) service: String,
    pub(super) readers: Vec<(MonitoredServer, RoutineReader)>,
    pub(super) server_info: Arc<ServerInfo>,
    pub(super) membership: watch::Receiver<Membership>,
    /// True if reads may go to replicas.
    pub(super) is_split: bool,
    /// Place of the monitor account, for messages.
    pub(super) account_source: AccountSource,
    /// Problems reported last.
    pub(super) problems: Vec<String>,
}

impl RoutineTask {
    /// Runs until the service is removed.
    pub(super) async fn run(mut self) {
        loop {
            let began = Instant::now();
            let (rest, interval) = match self.read().await {
                Ok(()) => {
                    let took = began.elapsed() * REST;
                    (CHANGED_INTERVAL.max(took), INTERVAL.max(took))
                }
                Err(error) => {
                    // Without permission to read the definitions, old ones must not be used.
                    if !matches!(error, WatchError::Away(_)) {
                        self.server_info.set_routines(None);
                        let problem = self.is_split.then(|| unknown_problem(&error.to_string()));
                        self.report_problems(problem.into_iter().collect());
                    }
                    (AWAY_PAUSE, AWAY_INTERVAL)
                }
            };
            tokio::time::sleep(rest).await;
            if self.wait(began + interval).await.is_err() {
                return;
            }
        }
    }

    /// Waits until a time, a change of the definitions, or another primary. Fails once the service
    /// is removed.
    async fn wait(&mut self, until: Instant) -> Result<(), watch::error::RecvError> {
        let epoch = self.membership.borrow_and_update().epoch;
        loop {
            tokio::select! {
                () = self.server_info.wait_for_routines_change() => return Ok(()),
                changed = timeout_at(until, self.membership.changed()) => match changed {
                    Ok(changed) => changed?,
                    Err(_) => return Ok(()),
                },
            }
            if self.membership.borrow_and_update().epoch != epoch {
                return Ok(());
            }
        }
    }

    async fn read(&mut self) -> Result<(), WatchError> {
        let order = self.membership.borrow().by_preference();
        let first = order.first().copied();
        let mut readers = self.readers.iter();
        let found = readers.find(|(listed, _)| Some(listed.id()) == first);
        let found = found.and_then(|(listed, reader)| Some((listed.target()?, reader)));
        let (target, reader) =
            found.ok_or_else(|| WatchError::Away("no server available".to_owned()))?;
        let routines = reader.read(&target, now_us(), LIMIT).await?;
        let (functions, tables) = routines.count();
        tracing::debug!(
            service = self.service,
            functions,
            tables,
            "routines and tables loaded"
        );
        self.report_problems(self.find_missing_privileges(&routines));
        let known = self.server_info.routines();
        // Analyses based on identical definitions stay valid.
        if known.is_none_or(|known| !known.says_the_same_as(&routines)) {
            self.server_info.set_routines(Some(Arc::new(routines)));
        }
        Ok(())
    }

    /// Returns the problems caused by missing permissions of the account.
    fn find_missing_privileges(&self, routines: &Routines) -> Vec<String> {
        let (_, tables) = routines.count();
        let mut missing = Vec::new();
        if tables == 0 && self.is_split && !routines.sees_tables() {
            let why = format!(
                "the monitor account sees no tables: if there are any, GRANT SHOW VIEW ON *.* to \
                 the user of {}",
                self.account_source.name()
            );
            missing.push(unknown_problem(&why));
        }
        if let Some(schema) = routines.blind().first() {
            let others = match routines.blind().len() {
                1 => String::new(),
                count => format!(" and {} others", count - 1),
            };
            missing.push(format!(
                "the monitor account cannot see triggers of schema '{schema}'{others}, so session \
                 state left by them is not detected and may leak to other clients: GRANT TRIGGER \
                 ON *.* to the user of {}",
                self.account_source.name()
            ));
        }
        missing
    }

    /// Reports the problems in the status, and logs the new ones.
    fn report_problems(&mut self, problems: Vec<String>) {
        self.server_info.set_problems(problems.clone());
        for problem in &problems {
            if !self.problems.contains(problem) {
                tracing::warn!(service = self.service, "{problem}");
            }
        }
        self.problems = problems;
    }
}

fn unknown_problem(why: &str) -> String {
    format!("cannot read tables and routines, so all reads go to the primary: {why}")
}
