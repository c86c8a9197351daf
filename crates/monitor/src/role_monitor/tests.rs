//! Tests the parts that need no server.

use std::sync::{
    Arc,
    atomic::{AtomicU32, Ordering::Relaxed},
};

use evenkeel_policy::cluster::report::{Postgres, ReplicationState};

use super::*;
use crate::persistent::RoleQuery;
use crate::probe::{AccountSource, Progress};

#[test]
fn no_debug_output_shows_the_password() {
    let account = MonitorAccount {
        user: "monitor".to_owned(),
        password: "s3cret".to_owned(),
        database: None,
        source: AccountSource::Service,
    };
    for database in [SqlProtocol::Mysql, SqlProtocol::Postgres] {
        let watcher = RoleMonitor::new(database, account.clone(), Tls::Off, None, || 0).unwrap();
        assert!(!format!("{watcher:?}").contains("s3cret"));
    }
}

/// A server with configurable behavior; its connections are numbered.
#[derive(Default)]
struct Fake {
    connections: AtomicU32,
    behaviour: Arc<AtomicU32>,
}

const ANSWERS: u32 = 0;
const FAILS: u32 = 1;
const IS_SILENT: u32 = 2;

impl RoleQuery for Fake {
    type Link = u32;

    async fn connect(&self, _: &Target, _: &Progress) -> Result<u32, WatchError> {
        Ok(self.connections.fetch_add(1, Relaxed) + 1)
    }

    async fn query_role(
        &mut self,
        link: u32,
        _: &Target,
        _: &Progress,
    ) -> Result<(ReplicationState, u32), WatchError> {
        match self.behaviour.load(Relaxed) {
            FAILS => Err(WatchError::Away("broken".to_owned())),
            IS_SILENT => std::future::pending().await,
            _ => Ok((said(link), link)),
        }
    }

    async fn closed(_: &mut u32) {}

    async fn goodbye(_: u32) {}
}

/// Reports the connection's number as the position.
fn said(link: u32) -> ReplicationState {
    ReplicationState::Postgres(Postgres {
        system_id: 1,
        started: "1".to_owned(),
        timeline: 1,
        in_recovery: false,
        lsn: link.into(),
        streaming: false,
        replay_age_ms: None,
        read_only_by_default: false,
    })
}

struct Bench {
    keeper: PersistentConnection<Fake>,
    behaviour: Arc<AtomicU32>,
    runtime: tokio::runtime::Runtime,
}

impl Bench {
    fn new() -> Self {
        let fake = Fake::default();
        Self {
            behaviour: fake.behaviour.clone(),
            keeper: PersistentConnection::new(fake, || 5_000),
            runtime: tokio::runtime::Builder::new_current_thread()
                .enable_time()
                .build()
                .unwrap(),
        }
    }

    fn ask(&mut self, target: &str, fresh: bool) -> Result<RoleReport, WatchError> {
        let target = Target::unix(target.into());
        let within = Duration::from_millis(20);
        self.runtime
            .block_on(self.keeper.ask(&target, fresh, within))
    }

    /// Checks the connection that returned the result, and whether it was new.
    #[track_caller]
    fn check(&mut self, target: &str, fresh: bool, expect: (u32, bool)) {
        let report = self.ask(target, fresh).unwrap();
        assert_eq!((report.status, report.fresh), (said(expect.0), expect.1));
        assert_eq!(report.queried_ms, 5);
    }
}

#[test]
fn a_connection_is_kept_until_a_fresh_one_is_wanted_or_the_server_is_another() {
    let mut bench = Bench::new();
    bench.check("a", false, (1, true));
    bench.check("a", false, (1, false));
    bench.check("a", true, (2, true));
    bench.check("a", false, (2, false));
    bench.check("b", false, (3, true));
    bench.check("b", false, (3, false));
}

#[test]
fn a_connection_that_failed_or_was_silent_is_never_used_again() {
    let mut bench = Bench::new();
    bench.check("a", false, (1, true));
    bench.behaviour.store(FAILS, Relaxed);
    assert_eq!(
        bench.ask("a", false),
        Err(WatchError::Away("broken".to_owned()))
    );
    bench.behaviour.store(ANSWERS, Relaxed);
    bench.check("a", false, (2, true));
    bench.behaviour.store(IS_SILENT, Relaxed);
    let silent = bench.ask("a", false).unwrap_err().to_string();
    assert_eq!(silent, "timed out after 20 ms while querying its role");
    bench.behaviour.store(ANSWERS, Relaxed);
    bench.check("a", false, (3, true));
}

#[test]
fn a_connection_that_the_server_closed_is_forgotten() {
    let mut bench = Bench::new();
    bench.check("a", false, (1, true));
    bench.runtime.block_on(bench.keeper.closed());
    bench.check("a", false, (2, true));
}

#[test]
fn a_question_may_be_asked_in_a_task_of_its_own() {
    fn sendable<T: Send>(value: T) -> T {
        value
    }
    let account = MonitorAccount {
        user: "monitor".to_owned(),
        password: String::new(),
        database: None,
        source: AccountSource::Service,
    };
    let mut bench = Bench::new();
    bench.runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    for database in [SqlProtocol::Mysql, SqlProtocol::Postgres] {
        let mut watcher =
            RoleMonitor::new(database, account.clone(), Tls::Off, None, || 0).unwrap();
        let target = Target::unix("/nonexistent/socket".into());
        let ask = sendable(watcher.ask(&target, false, Duration::from_secs(5)));
        let reported = bench.runtime.block_on(ask);
        assert_eq!(
            reported,
            Err(WatchError::Away("no such socket file".to_owned()))
        );
    }
}
