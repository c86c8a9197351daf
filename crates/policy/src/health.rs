//! Decides whether one server is up, from the results of probes and of client connections.

mod ejection;
mod schedule;
mod streak;

use ejection::Ejection;
use schedule::{grown, in_doubt_ms, jittered};
use streak::{FailureSource, FailureStreak};

/// Maximum effective `fall`; keeps a mistaken setting from making the failure history large.
const FALL_MAX: u32 = 1_000;

/// Settings of the health checks of one server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HealthSettings {
    /// Time between probes of a server that is up.
    pub interval_ms: u64,
    /// Timeout of a probe; the prober enforces it.
    pub timeout_ms: u64,
    /// Consecutive passed probes that bring a server back.
    pub rise: u32,
    /// Consecutive failures that take a server out.
    pub fall: u32,
    /// Maximum that the time between probes of a dead server grows to.
    pub dead_interval_ms_max: u64,
    /// False if there are no probes: only passive failures count, and `tick` replaces `probe`.
    pub probing: bool,
}

impl HealthSettings {
    fn fall(&self) -> u32 {
        self.fall.clamp(1, FALL_MAX)
    }

    /// Returns the time within which passive failures count as consecutive, in milliseconds.
    fn window_ms(&self) -> u64 {
        self.interval_ms.saturating_mul(2).max(10_000)
    }
}

/// Health of a server.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum HealthState {
    /// Not yet known: the server is new or (without probes) being retried. Takes clients.
    Starting,
    /// Takes clients.
    Up,
    /// Takes no clients.
    Down,
}

impl HealthState {
    /// Returns whether clients are sent to a server in this state.
    pub fn takes_clients(self) -> bool {
        self != HealthState::Down
    }
}

/// Result of a probe.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ProbeOutcome {
    /// The server works.
    Passed,
    /// The server does not work; the text is the reason.
    Failed(String),
    /// The probe timed out, for this reason, but the server answered clients meanwhile.
    Busy(String),
    /// The server responds but refuses the monitor's login: it is alive, and the monitor account
    /// must be corrected.
    LoginRefused(String),
}

/// Failure that a client's connection showed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PassiveFailure {
    /// The server refused the connection or did not respond.
    ConnectFailed,
    /// The server accepted the connection and closed it without sending a byte.
    ClosedBeforeAnyByte,
    /// The server answered a request, but badly.
    BadAnswer(BadAnswer),
}

/// Bad answer to one request of a connection that works. Other requests may get good ones.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BadAnswer {
    /// The answer has a status that reports a failure of the server.
    ServerError,
    /// The answer ended before its end.
    Cut,
    /// The answer did not begin in time.
    Late,
}

impl PassiveFailure {
    fn text(self) -> &'static str {
        match self {
            PassiveFailure::ConnectFailed => "connection failed",
            PassiveFailure::ClosedBeforeAnyByte => "closed without sending data",
            PassiveFailure::BadAnswer(BadAnswer::ServerError) => "server error",
            PassiveFailure::BadAnswer(BadAnswer::Cut) => "answer cut",
            PassiveFailure::BadAnswer(BadAnswer::Late) => "answer too late",
        }
    }

    fn source(self) -> FailureSource {
        match self {
            PassiveFailure::ConnectFailed | PassiveFailure::ClosedBeforeAnyByte => {
                FailureSource::Client
            }
            PassiveFailure::BadAnswer(_) => FailureSource::Answer,
        }
    }

    /// Returns whether a service would keep enough servers if this failure took one out. `others`
    /// is the number of its other servers that take clients, `all` the number of its servers.
    ///
    /// Bad answers take out at most half of them: if more servers answer badly, the cause is
    /// something that they share, and the remaining servers would only be overloaded.
    pub fn leaves_enough(self, others: usize, all: usize) -> bool {
        match self.source() {
            FailureSource::Answer => others > 0 && others.saturating_mul(2) >= all,
            FailureSource::Client | FailureSource::Probe => others > 0,
        }
    }
}

/// Change of the health state.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Change {
    /// Previous state.
    pub from: HealthState,
    /// New state.
    pub to: HealthState,
    /// Time of the change, in ms.
    pub at_ms: u64,
    /// Cause of the change.
    pub reason: String,
}

/// Health of one server. Only `change` alters the state, except `resume`, which adopts one.
#[derive(Debug, Clone)]
pub struct Health {
    settings: HealthSettings,
    state: HealthState,
    since_ms: u64,
    reason: String,
    monitor_problem: Option<String>,
    /// Failures since the last success; empty while the server is down.
    streak: FailureStreak,
    /// Consecutive passed probes while the server is down.
    passes: u32,
    /// True if a passive failure requests an immediate probe.
    probe_due: bool,
    /// True if the server was down and is now being retried; used without probes.
    half_open: bool,
    /// Time for which bad answers keep the server out; used with probes.
    ejection: Ejection,
    /// Time until the next retry while the server is down.
    dead_interval_ms: u64,
}

impl Health {
    /// Creates the health of a server whose state is unknown.
    pub fn new(settings: HealthSettings, now_ms: u64) -> Health {
        Health {
            dead_interval_ms: first_dead_interval_ms(&settings),
            settings,
            state: HealthState::Starting,
            since_ms: now_ms,
            reason: String::from("not checked yet"),
            monitor_problem: None,
            streak: FailureStreak::default(),
            passes: 0,
            probe_due: false,
            half_open: false,
            ejection: Ejection::default(),
        }
    }

    /// Adopts the state that another process has determined.
    pub fn resume(&mut self, state: HealthState, since_ms: u64, reason: String) {
        self.state = state;
        self.since_ms = since_ms;
        self.reason = reason;
    }

    /// Counts the result of a probe.
    pub fn probe(&mut self, now_ms: u64, outcome: ProbeOutcome) -> Option<Change> {
        self.probe_due = false;
        match outcome {
            // Taking an overloaded server out moves its clients to the next server, which then
            // fails as well.
            ProbeOutcome::Busy(_) if self.state != HealthState::Down => None,
            ProbeOutcome::Failed(why) | ProbeOutcome::Busy(why) => self.probe_failed(now_ms, why),
            ProbeOutcome::Passed => {
                self.monitor_problem = None;
                self.probe_passed(now_ms)
            }
            ProbeOutcome::LoginRefused(why) => {
                self.monitor_problem = Some(why);
                self.probe_passed(now_ms)
            }
        }
    }

    /// Counts a failure of a client's connection. `last` is true if the server must not be taken
    /// out: see [`PassiveFailure::leaves_enough`].
    ///
    /// The last server is never taken out by this: all clients would then fail, while now some may
    /// succeed.
    pub fn passive(&mut self, now_ms: u64, failure: PassiveFailure, last: bool) -> Option<Change> {
        if self.state == HealthState::Down {
            // The end of an old connection proves nothing new, and must not delay or hasten the
            // recovery.
            return None;
        }
        let source = failure.source();
        // A probe shows whether the server is reachable, and not whether its answers are good.
        self.probe_due |= self.settings.probing && source == FailureSource::Client;
        self.streak.add(now_ms, source, &self.settings);
        let is_enough = self.half_open || self.streak.is_full(&self.settings);
        if last || !is_enough {
            return None;
        }
        if source == FailureSource::Answer {
            self.ejection
                .begin(now_ms, self.settings.dead_interval_ms_max);
        }
        self.change(
            now_ms,
            HealthState::Down,
            self.streak.reason(failure.text()),
        )
    }

    /// Records that a client was served, which interrupts the series of clients' failures.
    ///
    /// Failed probes stay counted: only a probe can show that the probed function works again.
    pub fn served(&mut self, now_ms: u64) -> Option<Change> {
        self.streak.forget_clients();
        if self.settings.probing || self.state != HealthState::Starting {
            return None;
        }
        self.change(now_ms, HealthState::Up, String::from("client served"))
    }

    /// Retries a dead server, and marks a server up that took clients for a while without a
    /// failure. Called without probing, when `next_probe_in_ms` has elapsed. Has no effect with
    /// probing.
    pub fn tick(&mut self, now_ms: u64) -> Option<Change> {
        if self.settings.probing {
            return None;
        }
        let age_ms = now_ms.saturating_sub(self.since_ms);
        self.streak.expire(now_ms, &self.settings);
        match self.state {
            // Nine tenths, because the wait has a jitter of one tenth.
            HealthState::Down if age_ms >= self.dead_interval_ms / 10 * 9 => {
                let reason = format!("retrying after {age_ms} ms");
                self.change(now_ms, HealthState::Starting, reason)
            }
            HealthState::Starting
                if self.streak.is_empty() && age_ms >= self.settings.window_ms() =>
            {
                let reason = format!("no failure seen for {age_ms} ms");
                self.change(now_ms, HealthState::Up, reason)
            }
            _ => None,
        }
    }

    /// Returns the current state.
    pub fn state(&self) -> HealthState {
        self.state
    }

    /// Returns the time of the last change, in ms.
    pub fn since_ms(&self) -> u64 {
        self.since_ms
    }

    /// Returns the cause of the last change.
    pub fn reason(&self) -> &str {
        &self.reason
    }

    /// Returns the reason for which the monitor account cannot log in; `None` if it can.
    pub fn monitor_problem(&self) -> Option<&str> {
        self.monitor_problem.as_deref()
    }

    /// Returns the time until the next probe (without probing: the next `tick`), counted from the
    /// last probe, tick or change. Zero means immediately. Must be called again after each passive
    /// failure.
    pub fn next_probe_in_ms(&self, random: u64) -> u64 {
        let interval_ms = self.settings.interval_ms;
        match self.state {
            _ if self.probe_due => 0,
            HealthState::Down if self.passes > 0 => in_doubt_ms(interval_ms, random),
            HealthState::Down => jittered(self.dead_interval_ms, random),
            _ if !self.settings.probing => self.settings.window_ms(),
            // All servers start at the same moment; their probes should not.
            HealthState::Starting => random % (interval_ms.min(1_000) + 1),
            HealthState::Up if !self.streak.is_empty() => in_doubt_ms(interval_ms, random),
            HealthState::Up => jittered(interval_ms, random),
        }
    }

    /// Applies new settings; the state and the counts remain.
    pub fn update_settings(&mut self, settings: HealthSettings) {
        let cap_ms = settings.dead_interval_ms_max.max(1);
        self.dead_interval_ms = match self.state {
            HealthState::Down => self.dead_interval_ms.min(cap_ms),
            _ => first_dead_interval_ms(&settings),
        };
        self.probe_due &= settings.probing;
        self.half_open &= !settings.probing;
        if !settings.probing {
            self.passes = 0;
        }
        self.settings = settings;
    }

    fn probe_failed(&mut self, now_ms: u64, why: String) -> Option<Change> {
        if self.state == HealthState::Down {
            self.passes = 0;
            self.dead_interval_ms =
                grown(self.dead_interval_ms, self.settings.dead_interval_ms_max);
            return None;
        }
        self.streak
            .add(now_ms, FailureSource::Probe, &self.settings);
        if self.state == HealthState::Starting {
            return self.change(
                now_ms,
                HealthState::Down,
                format!("first probe failed: {why}"),
            );
        }
        if !self.streak.is_full(&self.settings) {
            return None;
        }
        self.change(now_ms, HealthState::Down, self.streak.reason(&why))
    }

    fn probe_passed(&mut self, now_ms: u64) -> Option<Change> {
        self.streak.keep_answers();
        match self.state {
            HealthState::Up => None,
            HealthState::Starting => {
                self.change(now_ms, HealthState::Up, String::from("first probe passed"))
            }
            HealthState::Down if self.ejection.lasts(now_ms) => None,
            HealthState::Down => {
                self.passes += 1;
                if self.passes < self.settings.rise.max(1) {
                    return None;
                }
                let reason = match self.passes {
                    1 => String::from("1 probe passed"),
                    passes => format!("{passes} probes passed"),
                };
                self.change(now_ms, HealthState::Up, reason)
            }
        }
    }

    /// Changes the state; every change goes through here.
    fn change(&mut self, now_ms: u64, to: HealthState, reason: String) -> Option<Change> {
        let from = self.state;
        self.dead_interval_ms = match (from, to) {
            (HealthState::Starting, HealthState::Down) if self.half_open => {
                grown(self.dead_interval_ms, self.settings.dead_interval_ms_max)
            }
            (HealthState::Down, HealthState::Starting) => self.dead_interval_ms,
            _ => first_dead_interval_ms(&self.settings),
        };
        self.half_open = from == HealthState::Down && to == HealthState::Starting;
        self.state = to;
        self.since_ms = now_ms;
        self.passes = 0;
        self.streak.clear();
        self.reason.clone_from(&reason);
        Some(Change {
            from,
            to,
            at_ms: now_ms,
            reason,
        })
    }
}

fn first_dead_interval_ms(settings: &HealthSettings) -> u64 {
    settings
        .interval_ms
        .min(settings.dead_interval_ms_max.max(1))
}

#[cfg(test)]
mod tests;
