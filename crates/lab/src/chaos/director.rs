//! What happens to the servers meanwhile, one thing after the other, from calm to calm.

use std::thread::sleep;
use std::time::{Duration, Instant, SystemTime};

use anyhow::{Context, Result};

use super::seed::Chance;
use crate::replication::parse_instant;
use crate::server::Role;
use crate::{Lab, Promotion, Server, eventually};

/// How long a freeze lasts.
const FREEZE: Duration = Duration::from_millis(1500);
/// How long the cluster may take to be whole again.
const WHOLE_LIMIT: Duration = Duration::from_secs(60);

/// A row is acknowledged only when one of the standbys has it, whoever is primary.
const SYNCHRONOUS: &str = "ALTER SYSTEM SET synchronous_standby_names = 'ANY 1 (walreceiver)'";

/// What can happen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Event {
    KillReplica,
    FreezeReplica,
    /// The primary is killed and started again.
    KillPrimary,
    /// The primary stands still for a moment.
    FreezePrimary,
    /// An operator moves the primary's role.
    Promote,
    /// The primary is killed, a replica takes over, the old one becomes a replica.
    FailOver,
    /// The primary stands still, a replica takes over, the old one comes back believing in itself.
    FailOverFrozen,
}

/// Where clients are led by who stands in front, if at all.
const IN_PLACE: [Event; 4] = [
    Event::KillReplica,
    Event::FreezeReplica,
    Event::FreezePrimary,
    Event::KillPrimary,
];
const FOLLOWED: [Event; 6] = [
    Event::Promote,
    Event::KillReplica,
    Event::FailOver,
    Event::FreezeReplica,
    Event::FailOverFrozen,
    Event::FreezePrimary,
];

impl Event {
    /// Whether another server takes the writes afterwards.
    pub(super) fn is_change(self) -> bool {
        matches!(
            self,
            Event::Promote | Event::FailOver | Event::FailOverFrozen
        )
    }
}

/// One that happened.
#[derive(Clone, Debug)]
pub(super) struct Happened {
    pub(super) event: Event,
    pub(super) begun: SystemTime,
    /// From when on writes could be taken again; `None` where they always could.
    pub(super) writable_at: Option<SystemTime>,
}

/// The servers and how many of them there are at their best.
pub(super) struct Director<'a> {
    pub(super) lab: &'a Lab,
    pub(super) servers: Vec<Server>,
    /// Whether clients are led to a new primary.
    pub(super) is_followed: bool,
    /// Between two events.
    pub(super) calm: Duration,
    pub(super) chance: Chance,
}

impl Director<'_> {
    /// Makes the cluster synchronous.
    pub(super) fn prepare(&self) -> Result<()> {
        for server in &self.servers {
            server.sql(SYNCHRONOUS)?;
            server.sql("SELECT pg_reload_conf()")?;
        }
        self.wait_whole()
    }

    /// One event after the other until the time is over; the last one is not cut short.
    pub(super) fn run(&mut self, until: Instant) -> Result<Vec<Happened>> {
        let events: &[Event] = if self.is_followed {
            &FOLLOWED
        } else {
            &IN_PLACE
        };
        let mut happened = Vec::new();
        for turn in 0.. {
            let calm_ms = u64::try_from(self.calm.as_millis())?;
            let calm = Duration::from_millis(calm_ms / 2 + self.chance.below(calm_ms));
            sleep(calm.min(until.saturating_duration_since(Instant::now())));
            if Instant::now() >= until {
                break;
            }
            let event = events[turn % events.len()];
            let begun = SystemTime::now();
            let writable_at = self
                .carry_out(event)
                .with_context(|| format!("event {turn}, {event:?}"))?;
            self.wait_whole()
                .with_context(|| format!("after event {turn}, {event:?}"))?;
            happened.push(Happened {
                event,
                begun,
                writable_at,
            });
        }
        Ok(happened)
    }

    /// Whom the lab made primary last.
    pub(super) fn primary(&self) -> Result<Server> {
        let primary = self.lab.primary_of(&self.servers[0]);
        primary.context("no server of the cluster is primary")
    }

    fn carry_out(&mut self, event: Event) -> Result<Option<SystemTime>> {
        let primary = self.primary()?;
        let replica = self.replica()?;
        match event {
            Event::KillReplica => {
                replica.kill()?;
                sleep(FREEZE);
                replica.start()?;
                Ok(None)
            }
            Event::FreezeReplica => freeze(&replica),
            Event::FreezePrimary => freeze(&primary).map(|_| Some(SystemTime::now())),
            Event::KillPrimary => {
                primary.kill()?;
                primary.start()?;
                Ok(Some(SystemTime::now()))
            }
            Event::Promote => {
                let promotion = self.lab.promote(&replica)?;
                let writable_at = self.writable_at(&promotion)?;
                self.bring_back(&primary)?;
                Ok(Some(writable_at))
            }
            Event::FailOver => {
                primary.kill()?;
                let promotion = self.lab.fail_over(&primary)?;
                let writable_at = self.writable_at(&promotion)?;
                self.bring_back(&primary)?;
                Ok(Some(writable_at))
            }
            Event::FailOverFrozen => {
                primary.freeze()?;
                let promotion = self.lab.fail_over(&primary)?;
                let writable_at = self.writable_at(&promotion)?;
                // Now there are two that take themselves for the primary.
                sleep(FREEZE);
                primary.thaw()?;
                sleep(FREEZE);
                self.bring_back(&primary)?;
                Ok(Some(writable_at))
            }
        }
    }

    /// A synchronous primary acknowledges nothing before a standby follows it.
    fn writable_at(&self, promotion: &Promotion) -> Result<SystemTime> {
        let primary = self.primary()?;
        let first = "SELECT extract(epoch FROM min(backend_start)) FROM pg_stat_replication \
                     WHERE state = 'streaming'";
        let followed_at = eventually(WHOLE_LIMIT, "a standby of the new primary", || {
            Ok(parse_instant(&primary.sql(first)?).ok())
        })?;
        Ok(promotion.writable_at.max(followed_at))
    }

    /// The settings of a server that becomes a standby are written anew.
    fn bring_back(&self, old: &Server) -> Result<()> {
        if old.role() == Role::Replica && old.is_running() {
            // A planned change has made it one already.
        } else {
            self.lab.rejoin(old)?;
        }
        old.sql(SYNCHRONOUS)?;
        old.sql("SELECT pg_reload_conf()")?;
        Ok(())
    }

    fn replica(&mut self) -> Result<Server> {
        let replicas: Vec<&Server> = self
            .servers
            .iter()
            .filter(|server| server.role() == Role::Replica)
            .collect();
        let index = self.chance.below(replicas.len() as u64) as usize;
        let chosen = replicas.get(index).copied().cloned();
        chosen.context("the cluster has no replica")
    }

    /// Every replica follows the primary, so that the next event may take any server away.
    fn wait_whole(&self) -> Result<()> {
        let primary = self.primary()?;
        let replicas = (self.servers.len() - 1).to_string();
        let following = "SELECT count(*) FROM pg_stat_replication WHERE state = 'streaming'";
        eventually(WHOLE_LIMIT, "all replicas follow the primary", || {
            let count = primary.sql(following).unwrap_or_default();
            Ok((count == replicas).then_some(()))
        })
    }
}

fn freeze(server: &Server) -> Result<Option<SystemTime>> {
    server.freeze()?;
    sleep(FREEZE);
    server.thaw()?;
    Ok(None)
}
