//! Schedules server faults, one after another, each from calm to calm.

use std::thread::sleep;
use std::time::{Duration, Instant, SystemTime};

use anyhow::{Context, Result};

use super::seed::ChaosRng;
use crate::replication::parse_instant;
use crate::scenario::How;
use crate::{Balancer, ClusterKind, Pooler, Scenario, Server, eventually};

/// Duration of a freeze.
const FREEZE: Duration = Duration::from_millis(1500);
/// Limit for the cluster to be complete again.
const WHOLE_LIMIT: Duration = Duration::from_secs(60);
/// Time after which a stopping server is killed.
const STOP_LIMIT: Duration = Duration::from_secs(10);

/// Allows users who may create tables to create the function that returns the server of a session.
const TRUST: &str = "SET GLOBAL log_bin_trust_function_creators = 1";

/// A fault or role change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Event {
    KillReplica,
    /// A replica is stopped cleanly and restarted.
    StopReplica,
    FreezeReplica,
    /// The primary is killed and restarted.
    KillPrimary,
    /// The primary is frozen for a moment.
    FreezePrimary,
    /// The operator moves the primary role.
    Promote,
    /// The primary is stopped cleanly, another server takes over, the old one returns.
    StopPrimary,
    /// The primary is killed, a replica takes over, the old one becomes a replica.
    FailOver,
    /// The primary is frozen, a replica takes over, the old one resumes as a second primary.
    FailOverFrozen,
}

/// Events without a change of primary, if the pooler cannot follow one.
const IN_PLACE: [Event; 4] = [
    Event::KillReplica,
    Event::FreezeReplica,
    Event::FreezePrimary,
    Event::KillPrimary,
];
/// Events if a script promotes.
const FOLLOWED: [Event; 6] = [
    Event::Promote,
    Event::KillReplica,
    Event::FailOver,
    Event::FreezeReplica,
    Event::FailOverFrozen,
    Event::FreezePrimary,
];
/// Events of Galera, where any node can accept writes.
const GALERA: [Event; 7] = [
    Event::StopPrimary,
    Event::KillReplica,
    Event::FailOver,
    Event::FreezeReplica,
    Event::FailOverFrozen,
    Event::StopReplica,
    Event::FreezePrimary,
];
/// Events of a group that elects its primary.
const GROUP: [Event; 8] = [
    Event::Promote,
    Event::KillReplica,
    Event::FailOver,
    Event::FreezeReplica,
    Event::StopPrimary,
    Event::StopReplica,
    Event::FailOverFrozen,
    Event::FreezePrimary,
];

impl Event {
    /// Returns whether another server accepts the writes afterwards.
    pub(super) fn is_change(self) -> bool {
        matches!(
            self,
            Event::Promote | Event::StopPrimary | Event::FailOver | Event::FailOverFrozen
        )
    }

    /// Returns whether the primary fails before its unreplicated transactions can be fetched.
    fn is_sudden(self) -> bool {
        matches!(self, Event::FailOver | Event::FailOverFrozen)
    }
}

/// An event that occurred.
#[derive(Clone, Debug)]
pub(super) struct FaultRecord {
    pub(super) event: Event,
    pub(super) started: SystemTime,
    /// Time from which writes were possible again; `None` if they always were.
    pub(super) writable_at: Option<SystemTime>,
    /// Interval of acknowledged writes that the cluster itself may have lost: asynchronous replicas
    /// had not received them.
    pub(super) may_lose: Option<(SystemTime, SystemTime)>,
    /// Length of the balancer's log before the event.
    pub(super) log_at: usize,
}

/// Injects server faults while clients run.
pub(super) struct FaultInjector<'a> {
    pub(super) scenario: &'a Scenario,
    pub(super) front: &'a Pooler,
    /// Time between two events.
    pub(super) interval: Duration,
    /// Names of the events to run, in this order; empty means all.
    pub(super) only: &'a [String],
    pub(super) rng: ChaosRng,
}

/// Prepares servers before their first use.
pub(super) fn prepare(scenario: &Scenario) -> Result<()> {
    let mut servers = scenario.servers.iter();
    servers.try_for_each(|server| settle(scenario.kind, server))?;
    scenario.wait_whole()
}

/// Applies settings that every server needs, again after each start or rebuild: the lab's servers
/// read no file that would keep them.
fn settle(kind: ClusterKind, server: &Server) -> Result<()> {
    let texts: &[&str] = match kind {
        // A row is acknowledged only if one of the standbys has it, whichever server is primary.
        ClusterKind::Postgres => &[
            "ALTER SYSTEM SET synchronous_standby_names = 'ANY 1 (walreceiver)'",
            "SELECT pg_reload_conf()",
        ],
        ClusterKind::Mysql | ClusterKind::GroupReplication => {
            &["SET PERSIST local_infile = ON", TRUST]
        }
        ClusterKind::Mariadb | ClusterKind::Galera => &[TRUST],
    };
    texts.iter().try_for_each(|text| server.sql(text).map(drop))
}

impl FaultInjector<'_> {
    /// Runs events until `until`; the last one is completed.
    pub(super) fn run(&mut self, until: Instant) -> Result<Vec<FaultRecord>> {
        let events = self.events()?;
        let mut faults = Vec::new();
        let mut whole_at = SystemTime::now();
        for turn in 0.. {
            let calm_ms = u64::try_from(self.interval.as_millis())?;
            let interval = Duration::from_millis(calm_ms / 2 + self.rng.below(calm_ms));
            sleep(interval.min(until.saturating_duration_since(Instant::now())));
            if Instant::now() >= until {
                break;
            }
            let event = events[turn % events.len()];
            let started = SystemTime::now();
            let log_at = self.front.log().len();
            eprintln!("event {turn}: {event:?}");
            let writable_at = self
                .carry_out(event)
                .with_context(|| format!("event {turn}, {event:?}"))?;
            let is_lossy = self.is_asynchronous() && event.is_sudden();
            // A frozen primary accepts writes again until it becomes a replica: no script has
            // fenced it.
            let lost_until = match event {
                Event::FailOverFrozen => writable_at.map(|_| SystemTime::now()),
                _ => writable_at,
            };
            let may_lose = lost_until.filter(|_| is_lossy).map(|at| (whole_at, at));
            whole_at = SystemTime::now();
            let whole = self.scenario.wait_whole();
            whole.with_context(|| format!("after event {turn}, {event:?}"))?;
            faults.push(FaultRecord {
                event,
                started,
                writable_at,
                may_lose,
                log_at,
            });
        }
        Ok(faults)
    }

    fn events(&self) -> Result<Vec<Event>> {
        let all = self.all_events();
        if self.only.is_empty() {
            return Ok(all.to_vec());
        }
        let named = self.only.iter().map(|name| {
            let found = all.iter().find(|event| format!("{event:?}") == *name);
            let found = found.copied();
            found.with_context(|| format!("unknown event {name:?}, available are: {all:?}"))
        });
        named.collect()
    }

    fn all_events(&self) -> &'static [Event] {
        match self.scenario.kind {
            _ if self.front.balancer().is_none() => &IN_PLACE,
            ClusterKind::Galera => &GALERA,
            ClusterKind::GroupReplication => &GROUP,
            _ => &FOLLOWED,
        }
    }

    /// Returns whether the primary acknowledges writes that no other server has yet.
    fn is_asynchronous(&self) -> bool {
        matches!(
            self.scenario.kind,
            ClusterKind::Mariadb | ClusterKind::Mysql
        )
    }

    /// Returns the server that receives the clients' writes.
    pub(super) fn primary(&self) -> Result<Server> {
        match self.front.balancer() {
            // All nodes accept writes.
            Some(balancer) if self.scenario.kind == ClusterKind::Galera => self.chosen(balancer),
            _ => self.scenario.writer(),
        }
    }

    fn chosen(&self, balancer: &Balancer) -> Result<Server> {
        let name = eventually(WHOLE_LIMIT, "a primary, as Evenkeel sees it", || {
            let status = balancer.status()?;
            let primary = status["clusters"][0]["primary"].as_str();
            Ok(primary.map(str::to_owned))
        });
        self.scenario.named(&name?).cloned()
    }

    fn carry_out(&mut self, event: Event) -> Result<Option<SystemTime>> {
        let primary = self.primary()?;
        let replica = self.other_than(&primary)?;
        eprintln!(
            "  primary {}, chosen at random {}",
            primary.name, replica.name
        );
        let gone = |end: Result<()>| {
            end?;
            sleep(FREEZE);
            replica.start()?;
            settle(self.scenario.kind, &replica).map(|()| None)
        };
        match event {
            Event::KillReplica => gone(replica.kill()),
            Event::StopReplica => gone(replica.stop_or_kill(STOP_LIMIT)),
            Event::FreezeReplica => freeze(&replica).map(|()| None),
            Event::FreezePrimary => freeze(&primary).map(|()| Some(SystemTime::now())),
            Event::KillPrimary => {
                primary.kill()?;
                primary.start()?;
                settle(self.scenario.kind, &primary)?;
                Ok(Some(SystemTime::now()))
            }
            Event::Promote => self.change(&primary, How::Planned),
            Event::StopPrimary => self.change(&primary, How::Stopped),
            Event::FailOver => self.change(&primary, How::Killed),
            Event::FailOverFrozen => self.change(&primary, How::Frozen),
        }
    }

    fn change(&self, primary: &Server, how: How) -> Result<Option<SystemTime>> {
        let change = self.scenario.change(primary, how)?;
        let writable_at = match self.scenario.kind {
            ClusterKind::Postgres => self.followed_at()?.max(change.writable_at),
            _ => change.writable_at,
        };
        if how == How::Frozen {
            // Now two servers consider themselves the primary.
            sleep(FREEZE);
            primary.thaw()?;
            sleep(FREEZE);
        }
        self.scenario.bring_back(primary)?;
        settle(self.scenario.kind, primary)?;
        Ok(Some(writable_at))
    }

    /// Returns when a standby follows: a synchronous primary acknowledges nothing before.
    fn followed_at(&self) -> Result<SystemTime> {
        let primary = self.scenario.writer()?;
        let first = "SELECT extract(epoch FROM min(backend_start)) FROM pg_stat_replication \
                     WHERE state = 'streaming'";
        eventually(WHOLE_LIMIT, "a standby of the new primary", || {
            Ok(parse_instant(&primary.sql(first)?).ok())
        })
    }

    /// Returns a random server other than the primary.
    fn other_than(&mut self, primary: &Server) -> Result<Server> {
        let servers = self.scenario.servers.iter();
        let others: Vec<&Server> = servers.filter(|one| one.name != primary.name).collect();
        let index = self.rng.below(others.len() as u64) as usize;
        let chosen = others.get(index).copied().cloned();
        chosen.context("the cluster has one server")
    }
}

fn freeze(server: &Server) -> Result<()> {
    server.freeze()?;
    sleep(FREEZE);
    server.thaw()
}
