//! Queries positions while replicas may lack writes of sessions: the primary soon after each write,
//! for all sessions that wrote; the replicas until they have applied that position.

use std::sync::Arc;
use std::time::{Duration, Instant};

use evenkeel_engine::clock::now_us;
use evenkeel_monitor::{PositionQuery, ServerPosition, WatchError};
use evenkeel_policy::causality::{self, Position, Sample, Sampler};
use evenkeel_proxy::server_info::ServerInfo;
use tokio::sync::watch;

use super::membership::{Membership, MonitoredServer, PositionTask};

/// Intervals between two queries to the primary. On a primary that only writes, the queries would
/// be a tenth of its work.
const SAMPLES: causality::SampleIntervals = causality::SampleIntervals {
    with_reads_us: 2_000,
    without_reads_us: 100_000,
};

/// Interval between two queries to a replica that catches up.
const FOLLOW_INTERVAL_MS: u64 = 5;

/// Interval for a replica that was queried a moment after the write.
const FOLLOW_INTERVAL_MS_MIN: u64 = 2;

/// Longest interval, for a replica whose position has not changed for more than `UNCHANGED_MAX`
/// responses.
const FOLLOW_INTERVAL_MS_MAX: u64 = 100;
const UNCHANGED_MAX: u32 = 8;

/// Interval after a failed query.
const FAILED_INTERVAL_MS: u64 = 100;

/// Time limit of a query, after which it is repeated.
const ANSWER_LIMIT: Duration = Duration::from_secs(1);

/// Waits up to this length are spent without a timer, since timers have a resolution of
/// milliseconds.
const SPIN_US_MAX: u64 = 50;

/// Source of a server's position.
pub(super) trait PositionSource: Send {
    fn query(&mut self) -> impl Future<Output = Result<ServerPosition, WatchError>> + Send;

    /// Waits until the server has applied everything that was acknowledged before it became the
    /// primary.
    fn catch_up(&mut self) -> impl Future<Output = Result<(), WatchError>> + Send;
}

/// A server that is queried over a persistent connection.
pub(super) struct MonitoredPosition {
    pub(super) listed: MonitoredServer,
    pub(super) query: PositionQuery,
}

impl PositionSource for MonitoredPosition {
    async fn query(&mut self) -> Result<ServerPosition, WatchError> {
        match self.listed.target() {
            Some(target) => self.query.ask(&target, ANSWER_LIMIT).await,
            None => Err(not_resolved()),
        }
    }

    async fn catch_up(&mut self) -> Result<(), WatchError> {
        match self.listed.target() {
            Some(target) => self.query.catch_up(&target, ANSWER_LIMIT).await,
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
    pub(super) source: T,
    pub(super) server_info: Arc<ServerInfo>,
    pub(super) membership: watch::Receiver<Membership>,
    /// Number of samples so far, shared by the followers of one service.
    pub(super) samples: watch::Sender<u64>,
}

impl<T: PositionSource> PositionFollower<T> {
    /// Runs until the service is removed.
    pub(super) async fn run(mut self) {
        let mut membership = self.membership.clone();
        loop {
            let task = membership.borrow_and_update().task(self.server_id);
            let changed = tokio::select! {
                changed = membership.changed() => changed,
                never = self.run_task(task) => match never {},
            };
            if changed.is_err() {
                return;
            }
        }
    }

    async fn run_task(&mut self, task: PositionTask) -> std::convert::Infallible {
        match task {
            PositionTask::Nothing => std::future::pending().await,
            PositionTask::Sample { epoch } => self.sample(epoch).await,
            PositionTask::Follow => self.follow().await,
        }
    }

    async fn sample(&mut self, epoch: u64) -> std::convert::Infallible {
        let mut sampler = Sampler::new(SAMPLES);
        // The first sample must include what sessions wrote on a previous primary.
        while self.source.catch_up().await.is_err() {
            self.pause_after_failure().await;
        }
        loop {
            let track = self.server_info.track();
            let (last_us, wanted_us) = (track.writes().last_us(), track.wanted_us());
            match sampler.due_us(epoch, last_us, wanted_us) {
                None => track.wait_for_write(last_us).await,
                Some(due_us) => tokio::select! {
                    () = sleep_until_us(due_us) => self.take_sample(epoch, &mut sampler).await,
                    () = track.wait_for_request(wanted_us) => {}
                },
            }
        }
    }

    async fn take_sample(&mut self, epoch: u64, sampler: &mut Sampler) {
        sampler.sent(now_us());
        let position = self.source.query().await;
        let sample = position.ok().and_then(|position| {
            Some(Sample {
                epoch,
                queried_us: position.queried_us,
                position: position.written?,
            })
        });
        // A response for another epoch of the primary does not count, and the queries continue.
        let sample = sample.filter(|sample| self.server_info.track().sampled(sample));
        sampler.answered(sample.as_ref());
        match sample {
            Some(_) => self.samples.send_modify(|count| *count += 1),
            None => self.pause_after_failure().await,
        }
    }

    async fn follow(&mut self) -> std::convert::Infallible {
        let mut samples = self.samples.subscribe();
        let mut interval = PollInterval::new();
        loop {
            samples.mark_unchanged();
            if self.server_info.positions().has_last_sample(self.server_id) {
                // The task holds a sender itself, so this cannot fail.
                let _ = samples.changed().await;
                interval.reset();
            }
            tokio::time::sleep_until(interval.due().into()).await;
            let position = self.source.query().await.ok();
            match position.and_then(|mut position| Some((position.applied.take()?, position))) {
                Some((applied, position)) => {
                    self.record_position(applied, &position, &mut interval)
                }
                None => self.pause_after_failure().await,
            }
        }
    }

    fn record_position(
        &self,
        applied: Position,
        position: &ServerPosition,
        interval: &mut PollInterval,
    ) {
        interval.record_poll(&applied);
        let track = self.server_info.track();
        track.applied(
            self.server_id,
            applied,
            position.queried_us,
            Some(position.wait),
        );
    }

    /// Requests a role check and pauses: the server has another role than assumed, or is
    /// unreachable, and the role monitor decides which.
    async fn pause_after_failure(&self) {
        self.server_info.request_role_check(self.server_id);
        tokio::time::sleep(Duration::from_millis(FAILED_INTERVAL_MS)).await;
    }
}

/// Interval between queries to a replica: short while it may apply the position at any moment,
/// longer and longer while its position does not change.
struct PollInterval {
    polled: Option<Instant>,
    position: Option<Position>,
    /// Consecutive responses with an unchanged position.
    unchanged: u32,
}

impl PollInterval {
    fn new() -> PollInterval {
        PollInterval {
            polled: None,
            position: None,
            unchanged: 0,
        }
    }

    fn due(&self) -> Instant {
        let interval = Duration::from_millis(self.interval_ms());
        self.polled
            .map_or_else(Instant::now, |polled| polled + interval)
    }

    fn interval_ms(&self) -> u64 {
        let slower = self
            .unchanged
            .saturating_sub(UNCHANGED_MAX)
            .min(u64::BITS / 2);
        match self.unchanged {
            1 | 2 => FOLLOW_INTERVAL_MS_MIN,
            _ => (FOLLOW_INTERVAL_MS << slower).min(FOLLOW_INTERVAL_MS_MAX),
        }
    }

    fn record_poll(&mut self, position: &Position) {
        self.polled = Some(Instant::now());
        self.unchanged = match self.position.as_ref() == Some(position) {
            true => self.unchanged.saturating_add(1),
            false => 0,
        };
        self.position = Some(position.clone());
    }

    /// Resets the interval: the replica had applied the last sample, so it is not known to be
    /// stuck.
    fn reset(&mut self) {
        self.unchanged = 0;
    }
}

async fn sleep_until_us(due_us: u64) {
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
