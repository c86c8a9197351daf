//! Reads the catalogs of the databases that sessions use, periodically and after changes.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use evenkeel_engine::clock::{now_ms, now_us};
use evenkeel_monitor::probe::MonitorAccount;
use evenkeel_monitor::{CatalogReader, WatchError};
use evenkeel_proxy::server_info::{Database, ServerInfo};
use tokio::sync::watch;

use super::membership::{Membership, MonitoredServer};

/// Interval between two readings: other clients change catalogs too, without passing through
/// Evenkeel.
const INTERVAL_MS: u64 = 60_000;

/// Delay after a change made by a session of Evenkeel: several changes usually come together.
const CHANGED_INTERVAL_MS: u64 = 1_000;

/// Interval after a server did not respond.
const AWAY_INTERVAL_MS: u64 = 5_000;

/// Minimum rest after a reading, as a multiple of its duration, so that slow readings are repeated
/// less often.
const REST: u64 = 20;
const CHANGED_REST: u64 = 5;

/// Time limit of one reading.
const LIMIT: Duration = Duration::from_secs(60);

/// Task that reads the catalogs of one service, one database after the other.
pub(super) struct CatalogTask {
    pub(super) service: String,
    pub(super) servers: Vec<MonitoredServer>,
    pub(super) account: MonitorAccount,
    pub(super) server_info: Arc<ServerInfo>,
    pub(super) membership: watch::Receiver<Membership>,
}

/// Reading state of one database.
#[derive(Default)]
struct DatabaseReadState {
    schedule: ReadSchedule,
    /// True if the last reading failed because no server was reachable.
    is_away: bool,
    reader: Option<(u64, CatalogReader)>,
    /// Last reported problem.
    problem: Option<String>,
}

/// Schedule of a database's next reading.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
enum ReadSchedule {
    /// The database is read once a session uses it, or is connected to it.
    #[default]
    Dormant,
    /// The last attempt, successful or not, ended at `since_ms` and took `took_ms`.
    Rests {
        since_ms: u64,
        interval_ms: u64,
        took_ms: u64,
    },
}

impl ReadSchedule {
    fn after_reading(now_ms: u64, took_ms: u64) -> ReadSchedule {
        ReadSchedule::Rests {
            since_ms: now_ms,
            interval_ms: INTERVAL_MS.max(REST * took_ms),
            took_ms,
        }
    }

    fn after_failure(now_ms: u64, error: &WatchError, has_failed_before: bool) -> ReadSchedule {
        let interval_ms = match must_forget(error, has_failed_before) {
            true => INTERVAL_MS,
            false => AWAY_INTERVAL_MS,
        };
        ReadSchedule::Rests {
            since_ms: now_ms,
            interval_ms,
            took_ms: interval_ms / CHANGED_REST,
        }
    }

    /// Returns the schedule for a missing database. Its sessions may stay, and use the next
    /// database of that name.
    fn after_absence(now_ms: u64) -> ReadSchedule {
        ReadSchedule::Rests {
            since_ms: now_ms,
            interval_ms: INTERVAL_MS,
            took_ms: 0,
        }
    }

    /// Returns the time of the next reading. `None`: not before a session uses the database.
    fn due_ms(self, is_wanted: bool, is_changed: bool) -> Option<u64> {
        match self {
            ReadSchedule::Dormant => is_wanted.then_some(0),
            ReadSchedule::Rests {
                since_ms,
                interval_ms,
                took_ms,
            } => Some(match is_changed {
                true => since_ms + CHANGED_INTERVAL_MS.max(CHANGED_REST * took_ms),
                false => since_ms + interval_ms,
            }),
        }
    }
}

impl CatalogTask {
    /// Runs until the service is removed.
    pub(super) async fn run(mut self) {
        let mut read_states: BTreeMap<String, DatabaseReadState> = BTreeMap::new();
        let mut epoch = self.membership.borrow().epoch;
        loop {
            let due = self.next_due(&mut read_states);
            let sleep_ms = match due {
                Some((due_ms, database)) if due_ms <= now_ms() => {
                    let read_state = read_states.entry(database.name().to_owned()).or_default();
                    self.read_database(&database, read_state).await;
                    let problems = read_states
                        .values()
                        .filter_map(|read_state| read_state.problem.clone());
                    self.server_info.set_problems(problems.collect());
                    continue;
                }
                Some((due_ms, _)) => Some(due_ms.saturating_sub(now_ms())),
                None => None,
            };
            tokio::select! {
                () = self.server_info.databases().news() => {}
                () = sleep_until_due(sleep_ms) => {}
                changed = self.membership.changed() => match changed {
                    Ok(()) => retry_unreachable(&mut read_states),
                    Err(_) => return,
                },
            }
            let now = self.membership.borrow_and_update().epoch;
            if std::mem::replace(&mut epoch, now) != now {
                // The new primary may lack changes that its predecessor had.
                let all = self.server_info.databases().all();
                all.iter().for_each(|database| database.changed());
            }
        }
    }

    /// Returns the database to read next, and its due time. Drops the references to the others: an
    /// unused database may have to be evicted.
    fn next_due(
        &self,
        read_states: &mut BTreeMap<String, DatabaseReadState>,
    ) -> Option<(u64, Arc<Database>)> {
        let all = self.server_info.databases().all();
        drop_removed(&all, read_states);
        let due = |database: Arc<Database>| {
            let closed_until_ms = database.closed_until_ms();
            let read_state = read_states.get(database.name());
            // Nothing is known about a new database of the same name.
            let read_state =
                read_state.filter(|read_state| read_state.is_away || !database.is_awaited());
            let schedule = read_state.map(|read_state| read_state.schedule);
            let schedule = schedule.unwrap_or_default();
            let is_wanted = database.is_used() || has_sessions(&database);
            let due_ms = schedule.due_ms(is_wanted, database.is_changed())?;
            Some((due_ms.max(closed_until_ms), database))
        };
        let due = all.into_iter().filter_map(due);
        due.min_by_key(|(due_ms, _)| *due_ms)
    }

    async fn read_database(&self, database: &Arc<Database>, read_state: &mut DatabaseReadState) {
        if !database.take_used() && !has_sessions(database) {
            return unload(database, read_state);
        }
        database.begin_reading();
        if !database.is_known() {
            // The reader's results may be from a previous database of that name.
            read_state.reader = None;
        }
        let (began_ms, began_us) = (now_ms(), now_us());
        let read = tokio::select! {
            read = self.read_or_leave(database, read_state) => read,
            () = database.closing() => {
                read_state.reader = None;
                // `next_due` schedules the reading again once `close_until` has passed.
                database.changed();
                return;
            }
        };
        read_state.is_away = matches!(read, Err(WatchError::Away(_)));
        match read {
            Ok(()) => {
                database.record_reading(began_us);
                read_state.problem = None;
                let took_ms = now_ms() - began_ms;
                read_state.schedule = ReadSchedule::after_reading(now_ms(), took_ms);
            }
            Err(WatchError::NoDatabase(_)) => {
                // The database was dropped. That affects only its clients, which receive the
                // server's error.
                unload(database, read_state);
                read_state.schedule = ReadSchedule::after_absence(now_ms());
            }
            Err(error) => {
                let has_failed_before = read_state.problem.is_some();
                read_state.schedule =
                    ReadSchedule::after_failure(now_ms(), &error, has_failed_before);
                // Without permission to read the catalog, the old catalog must not be used.
                if must_forget(&error, has_failed_before) {
                    database.set_catalog(None);
                }
                if !matches!(error, WatchError::Away(_)) {
                    read_state.reader = None;
                }
                self.report_problem(database, read_state, &error.to_string());
            }
        }
        if !read_state.is_away {
            database.end_reading();
        }
    }

    /// Reads the catalog, but stops if another server becomes preferred meanwhile: this one may be
    /// frozen, and logins wait.
    async fn read_or_leave(
        &self,
        database: &Database,
        read_state: &mut DatabaseReadState,
    ) -> Result<(), WatchError> {
        let first = self.membership.borrow().by_preference().first().copied();
        let mut membership = self.membership.clone();
        let other = membership.wait_for(|now| now.by_preference().first().copied() != first);
        tokio::select! {
            read = self.read(first, database, read_state) => read,
            _ = other => {
                // The reader was in the middle of a response.
                read_state.reader = None;
                Err(WatchError::Away("switched to another server".to_owned()))
            }
        }
    }

    async fn read(
        &self,
        first: Option<u64>,
        database: &Database,
        read_state: &mut DatabaseReadState,
    ) -> Result<(), WatchError> {
        let mut servers = self.servers.iter();
        let found = servers.find(|one| Some(one.id()) == first);
        let found = found.and_then(|listed| Some((listed, listed.target()?)));
        let (listed, target) =
            found.ok_or_else(|| WatchError::Away("no server available".to_owned()))?;
        let reader = self.reader(listed, database, read_state)?;
        if let Some(catalog) = reader.read(&target, now_us(), LIMIT).await? {
            let (functions, relations) = catalog.count();
            tracing::debug!(
                service = self.service,
                database = database.name(),
                functions,
                relations,
                "catalog loaded"
            );
            database.set_catalog(Some(Arc::new(catalog)));
        }
        Ok(())
    }

    /// Returns the reader for a server. The results of the last reading hold for the same server
    /// only.
    fn reader<'a>(
        &self,
        listed: &MonitoredServer,
        database: &Database,
        read_state: &'a mut DatabaseReadState,
    ) -> Result<&'a mut CatalogReader, WatchError> {
        let known = read_state
            .reader
            .take()
            .filter(|(id, _)| *id == listed.id());
        let reader = match known {
            Some(known) => known,
            None => {
                let account = MonitorAccount {
                    database: Some(database.name().to_owned()),
                    ..self.account.clone()
                };
                let made = CatalogReader::new(account, &listed.tls);
                let made = made.map_err(|error| WatchError::CannotTell(error.to_string()))?;
                (listed.id(), made)
            }
        };
        Ok(&mut read_state.reader.insert(reader).1)
    }

    /// Reports a problem in the status, and logs it if it is new.
    fn report_problem(&self, database: &Database, read_state: &mut DatabaseReadState, why: &str) {
        let problem = format!(
            "cannot read the catalog of database '{}', so statements that call functions go to the \
             primary, and session state left by functions is not detected and may leak to other \
             clients: {why}",
            database.name()
        );
        if read_state.problem.as_ref() != Some(&problem) {
            tracing::warn!(service = self.service, "{problem}");
            read_state.problem = Some(problem);
        }
    }
}

/// Returns whether the known catalog must be discarded. A query that fails once, because of a time
/// limit or a conflict with replay, is repeated soon instead.
fn must_forget(error: &WatchError, has_failed_before: bool) -> bool {
    match error {
        WatchError::Away(_) => false,
        WatchError::CannotTell(_) => has_failed_before,
        WatchError::LoginRefused(_) | WatchError::NoDatabase(_) => true,
    }
}

/// Schedules unreachable databases immediately after a change of the servers: one may be reachable
/// now.
fn retry_unreachable(read_states: &mut BTreeMap<String, DatabaseReadState>) {
    for read_state in read_states
        .values_mut()
        .filter(|read_state| read_state.is_away)
    {
        read_state.schedule = ReadSchedule::Dormant;
    }
}

/// Discards the catalog. It is read again when a session uses the database.
fn unload(database: &Database, read_state: &mut DatabaseReadState) {
    *read_state = DatabaseReadState::default();
    database.forget();
}

/// Returns whether a session is connected to the database. An idle session relies on the known
/// catalog when it continues, so that catalog must not become outdated.
fn has_sessions(database: &Arc<Database>) -> bool {
    /// References to a database without sessions: that of the list, and the reader's own.
    const WITHOUT_SESSIONS: usize = 2;
    Arc::strong_count(database) > WITHOUT_SESSIONS
}

/// Drops the state of evicted databases.
fn drop_removed(all: &[Arc<Database>], read_states: &mut BTreeMap<String, DatabaseReadState>) {
    if read_states.len() > all.len() {
        let names: BTreeSet<&str> = all.iter().map(|database| database.name()).collect();
        read_states.retain(|name, _| names.contains(&**name));
    }
}

async fn sleep_until_due(sleep_ms: Option<u64>) {
    match sleep_ms {
        Some(sleep_ms) => tokio::time::sleep(Duration::from_millis(sleep_ms)).await,
        None => std::future::pending().await,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_database_is_read_when_it_is_used_and_then_now_and_then() {
        assert_eq!(ReadSchedule::Dormant.due_ms(false, true), None);
        assert_eq!(ReadSchedule::Dormant.due_ms(true, false), Some(0));
        let read = ReadSchedule::after_reading(1_000, 10);
        assert_eq!(read.due_ms(true, false), Some(61_000));
        assert_eq!(read.due_ms(false, false), Some(61_000));
    }

    #[test]
    fn a_change_is_read_soon_and_a_long_reading_is_not_repeated_at_once() {
        assert_eq!(
            ReadSchedule::after_reading(1_000, 10).due_ms(true, true),
            Some(2_000)
        );
        let long = ReadSchedule::after_reading(1_000, 10_000);
        assert_eq!(long.due_ms(true, true), Some(51_000));
        assert_eq!(long.due_ms(true, false), Some(201_000));
    }

    #[test]
    fn what_may_pass_is_asked_again_soon_and_what_refuses_is_not() {
        let asked_at = |error: WatchError, has_failed_before| {
            let schedule = ReadSchedule::after_failure(0, &error, has_failed_before);
            assert_eq!(schedule.due_ms(true, true), schedule.due_ms(true, false));
            schedule.due_ms(true, false)
        };
        let away = || WatchError::Away(String::new());
        let slow = || WatchError::CannotTell(String::new());
        let refused = || WatchError::LoginRefused(String::new());
        assert_eq!(asked_at(away(), false), Some(5_000));
        assert_eq!(asked_at(away(), true), Some(5_000));
        assert_eq!(asked_at(slow(), false), Some(5_000));
        assert_eq!(asked_at(slow(), true), Some(60_000));
        assert_eq!(asked_at(refused(), false), Some(60_000));
    }
}
