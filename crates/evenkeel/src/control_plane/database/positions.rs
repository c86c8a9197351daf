//! Queries positions while replicas may lack writes of sessions: the primary soon after each write,
//! for all sessions that wrote; the replicas until they have applied that position.

use std::sync::Arc;
use std::time::{Duration, Instant};

use evenkeel_policy::causality::{self, Position, Sample, Sampler};
use evenkeel_proxy::monitor::{PositionQuery, ServerPosition, WatchError};
use evenkeel_proxy::now_us;
use evenkeel_proxy::server_info::ServerInfo;
use tokio::sync::watch;

use super::membership::{Membership, MonitoredServer, PositionTask};

/// Intervals between two queries to the primary. On a primary that only writes, the queries would
/// be a tenth of its work.
const SAMPLES: causality::SampleIntervals = causality::SampleIntervals {
    wanted_us: 2_000,
    unwanted_us: 100_000,
};

/// Interval between two queries to a replica that catches up.
const FOLLOW_INTERVAL_MS: u64 = 5;

/// Interval for a replica that was queried a moment after the write.
const FOLLOW_INTERVAL_MS_MIN: u64 = 2;

/// Longest interval, for a replica whose position has not changed for more than `PATIENT_ANSWERS`
/// responses.
const FOLLOW_INTERVAL_MS_MAX: u64 = 100;
const PATIENT_ANSWERS: u32 = 8;

/// Interval after a failed query.
const FAILED_INTERVAL_MS: u64 = 100;

/// Time limit of a query, after which it is repeated.
const ANSWER_LIMIT: Duration = Duration::from_secs(1);

/// Waits up to this length are spent without a timer, since timers have a resolution of
/// milliseconds.
const SPIN_US_MAX: u64 = 50;

/// Source of a server's position.
pub(super) trait PositionSource: Send {
    fn ask(&mut self) -> impl Future<Output = Result<ServerPosition, WatchError>> + Send;

    /// Waits until the server has applied everything that was acknowledged before it became the
    /// primary.
    fn catch_up(&mut self) -> impl Future<Output = Result<(), WatchError>> + Send;
}

/// A server that is queried over a persistent connection.
pub(super) struct MonitoredPosition {
    pub(super) listed: MonitoredServer,
    pub(super) asker: PositionQuery,
}

impl PositionSource for MonitoredPosition {
    async fn ask(&mut self) -> Result<ServerPosition, WatchError> {
        match self.listed.target() {
            Some(target) => self.asker.ask(&target, ANSWER_LIMIT).await,
            None => Err(not_resolved()),
        }
    }

    async fn catch_up(&mut self) -> Result<(), WatchError> {
        match self.listed.target() {
            Some(target) => self.asker.catch_up(&target, ANSWER_LIMIT).await,
            None => Err(not_resolved()),
        }
    }
}

fn not_resolved() -> WatchError {
    WatchError::Away("host name not resolved".to_owned())
}

/// Task that queries one server's position.
pub(super) struct PositionFollower<T> {
    pub(super) server_id: u64,
    pub(super) tells: T,
    pub(super) knowledge: Arc<ServerInfo>,
    pub(super) roster: watch::Receiver<Membership>,
    /// Number of samples so far, shared by the followers of one service.
    pub(super) samples: watch::Sender<u64>,
}

impl<T: PositionSource> PositionFollower<T> {
    /// Runs until the service is removed.
    pub(super) async fn go_on(mut self) {
        let mut roster = self.roster.clone();
        loop {
            let duty = roster.borrow_and_update().duty(self.server_id);
            let changed = tokio::select! {
                changed = roster.changed() => changed,
                never = self.work(duty) => match never {},
            };
            if changed.is_err() {
                return;
            }
        }
    }

    async fn work(&mut self, duty: PositionTask) -> std::convert::Infallible {
        match duty {
            PositionTask::Nothing => std::future::pending().await,
            PositionTask::Sample { epoch } => self.sample(epoch).await,
            PositionTask::Follow => self.follow().await,
        }
    }

    async fn sample(&mut self, epoch: u64) -> std::convert::Infallible {
        let mut sampler = Sampler::new(SAMPLES);
        // The first sample must include what sessions wrote on a previous primary.
        while self.tells.catch_up().await.is_err() {
            self.give_pause().await;
        }
        loop {
            let track = self.knowledge.track();
            let (last_us, wanted_us) = (track.writes().last_us(), track.wanted_us());
            match sampler.due_us(epoch, last_us, wanted_us) {
                None => track.written_after(last_us).await,
                Some(due_us) => tokio::select! {
                    () = until_us(due_us) => self.take_sample(epoch, &mut sampler).await,
                    () = track.wanted_after(wanted_us) => {}
                },
            }
        }
    }

    async fn take_sample(&mut self, epoch: u64, sampler: &mut Sampler) {
        sampler.sent(now_us());
        let place = self.tells.ask().await;
        let sample = place.ok().and_then(|place| {
            Some(Sample {
                epoch,
                asked_us: place.asked_us,
                position: place.written?,
            })
        });
        // A response for another epoch of the primary does not count, and the queries continue.
        let sample = sample.filter(|sample| self.knowledge.track().sampled(sample));
        sampler.answered(sample.as_ref());
        match sample {
            Some(_) => self.samples.send_modify(|count| *count += 1),
            None => self.give_pause().await,
        }
    }

    async fn follow(&mut self) -> std::convert::Infallible {
        let mut samples = self.samples.subscribe();
        let mut pace = PollInterval::new();
        loop {
            samples.mark_unchanged();
            if self.knowledge.positions().has_last_sample(self.server_id) {
                // The task holds a sender itself, so this cannot fail.
                let _ = samples.changed().await;
                pace.hurry();
            }
            tokio::time::sleep_until(pace.due().into()).await;
            let place = self.tells.ask().await.ok();
            match place.and_then(|mut place| Some((place.applied.take()?, place))) {
                Some((applied, place)) => self.note(applied, &place, &mut pace),
                None => self.give_pause().await,
            }
        }
    }

    fn note(&self, applied: Position, place: &ServerPosition, pace: &mut PollInterval) {
        pace.asked(&applied);
        let track = self.knowledge.track();
        track.applied(self.server_id, applied, place.asked_us, Some(place.wait));
    }

    /// Requests a role check and pauses: the server has another role than assumed, or is
    /// unreachable, and the role monitor decides which.
    async fn give_pause(&self) {
        self.knowledge.request_role_check(self.server_id);
        tokio::time::sleep(Duration::from_millis(FAILED_INTERVAL_MS)).await;
    }
}

/// Interval between queries to a replica: short while it may apply the position at any moment,
/// longer and longer while its position does not change.
struct PollInterval {
    asked: Option<Instant>,
    at: Option<Position>,
    /// Consecutive responses with an unchanged position.
    unmoved: u32,
}

impl PollInterval {
    fn new() -> PollInterval {
        PollInterval {
            asked: None,
            at: None,
            unmoved: 0,
        }
    }

    fn due(&self) -> Instant {
        let interval = Duration::from_millis(self.interval_ms());
        self.asked
            .map_or_else(Instant::now, |asked| asked + interval)
    }

    fn interval_ms(&self) -> u64 {
        let slower = self
            .unmoved
            .saturating_sub(PATIENT_ANSWERS)
            .min(u64::BITS / 2);
        match self.unmoved {
            1 | 2 => FOLLOW_INTERVAL_MS_MIN,
            _ => (FOLLOW_INTERVAL_MS << slower).min(FOLLOW_INTERVAL_MS_MAX),
        }
    }

    fn asked(&mut self, at: &Position) {
        self.asked = Some(Instant::now());
        self.unmoved = match self.at.as_ref() == Some(at) {
            true => self.unmoved.saturating_add(1),
            false => 0,
        };
        self.at = Some(at.clone());
    }

    /// Resets the interval: the replica had applied the last sample, so it is not known to be
    /// stuck.
    fn hurry(&mut self) {
        self.unmoved = 0;
    }
}

async fn until_us(due_us: u64) {
    loop {
        match due_us.saturating_sub(now_us()) {
            0 => return,
            wait_us if wait_us <= SPIN_US_MAX => tokio::task::yield_now().await,
            wait_us => tokio::time::sleep(Duration::from_micros(wait_us)).await,
        }
    }
}

#[cfg(test)]
mod tests;
