//! The verdict on one server: is it up? Fed with what probes and clients saw, and the time.

mod schedule;
mod streak;

use schedule::{grown, in_doubt_ms, jittered};
use streak::{FailureSource, FailureStreak};

/// Longer than any configuration means; keeps a wrong `fall` from making the memory of failures
/// large.
const FALL_MAX: u32 = 1_000;

/// How one server is watched.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HealthSettings {
    /// Time between probes of a server that is up.
    pub interval_ms: u64,
    /// How long a probe may take; the prober keeps to it.
    pub timeout_ms: u64,
    /// Probes passed in a row that bring a server back.
    pub rise: u32,
    /// Failures in a row that take a server out.
    pub fall: u32,
    /// The time between probes of a dead server grows up to this.
    pub dead_interval_ms_max: u64,
    /// False: nobody probes, only passive signs count, and `tick` takes the place of `probe`.
    pub probing: bool,
}

impl HealthSettings {
    fn fall(&self) -> u32 {
        self.fall.clamp(1, FALL_MAX)
    }

    /// Passive signs further apart than this are not in a row.
    fn window_ms(&self) -> u64 {
        self.interval_ms.saturating_mul(2).max(10_000)
    }
}

/// What is thought of a server.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum HealthState {
    /// Not yet known, since it is new or (without probes) given another chance. Takes clients.
    Starting,
    /// Takes clients.
    Up,
    /// Takes none.
    Down,
}

impl HealthState {
    /// Whether a server of this standing is offered to clients.
    pub fn takes_clients(self) -> bool {
        self != HealthState::Down
    }
}

/// What a probe found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ProbeOutcome {
    /// The server does its work.
    Passed,
    /// It does not; the text says why.
    Failed(String),
    /// It did not answer the probe in time, for this reason, but answered clients meanwhile.
    Busy(String),
    /// It speaks but does not let the monitor in: alive, and the monitor account needs care.
    LoginRefused(String),
}

/// What a client's connection showed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PassiveFailure {
    /// The server refused or did not answer the connection.
    ConnectFailed,
    /// It took the connection and closed it without a byte.
    ClosedBeforeAnyByte,
}

impl PassiveFailure {
    fn text(self) -> &'static str {
        match self {
            PassiveFailure::ConnectFailed => "connection failed",
            PassiveFailure::ClosedBeforeAnyByte => "closed without sending data",
        }
    }
}

/// A change of standing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Change {
    /// The standing before.
    pub from: HealthState,
    /// The standing from now on.
    pub to: HealthState,
    /// When.
    pub at_ms: u64,
    /// What caused it.
    pub reason: String,
}

/// The state of the verdict; only `change` alters the standing (`resume` takes over a known one).
#[derive(Debug, Clone)]
pub struct Health {
    settings: HealthSettings,
    standing: HealthState,
    since_ms: u64,
    reason: String,
    monitor_problem: Option<String>,
    /// Failures since the last success; empty while down.
    row: FailureStreak,
    /// Probes passed in a row while down.
    passes: u32,
    /// A passive sign asks for a probe at once.
    probe_due: bool,
    /// Without probes: a server out before, now tried again.
    half_open: bool,
    /// The time to the next try while down.
    dead_interval_ms: u64,
}

impl Health {
    /// A server of which nothing is known yet.
    pub fn new(settings: HealthSettings, now_ms: u64) -> Health {
        Health {
            dead_interval_ms: first_dead_interval_ms(&settings),
            settings,
            standing: HealthState::Starting,
            since_ms: now_ms,
            reason: String::from("not checked yet"),
            monitor_problem: None,
            row: FailureStreak::default(),
            passes: 0,
            probe_due: false,
            half_open: false,
        }
    }

    /// Goes on with what another process has found out.
    pub fn resume(&mut self, standing: HealthState, since_ms: u64, reason: String) {
        self.standing = standing;
        self.since_ms = since_ms;
        self.reason = reason;
    }

    /// Counts a probe.
    pub fn probe(&mut self, now_ms: u64, outcome: ProbeOutcome) -> Option<Change> {
        self.probe_due = false;
        match outcome {
            // An overloaded server that is taken out loses its clients, and the next one falls.
            ProbeOutcome::Busy(_) if self.standing != HealthState::Down => None,
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

    /// Counts what a client's connection showed. `last`: no other server takes clients.
    ///
    /// The last server is never taken out by this: then clients would surely fail, now they may
    /// succeed.
    pub fn passive(&mut self, now_ms: u64, sign: PassiveFailure, last: bool) -> Option<Change> {
        if self.standing == HealthState::Down {
            // An old connection's end tells nothing new, and must not delay or speed up the way
            // back.
            return None;
        }
        self.probe_due = self.settings.probing;
        self.row.add(now_ms, FailureSource::Client, &self.settings);
        let enough = self.half_open || self.row.is_full(&self.settings);
        if last || !enough {
            return None;
        }
        self.change(now_ms, HealthState::Down, self.row.reason(sign.text()))
    }

    /// A client was served: its predecessors' bad luck was not a row.
    ///
    /// Failed probes stay counted, as only a probe says that what they look at works again.
    pub fn served(&mut self, now_ms: u64) -> Option<Change> {
        self.row.forget_clients();
        if self.settings.probing || self.standing != HealthState::Starting {
            return None;
        }
        self.change(now_ms, HealthState::Up, String::from("client served"))
    }

    /// Without probing, called when `next_probe_in_ms` is over: gives a dead server another chance,
    /// and calls one up that took clients for a while and showed no bad sign. With probing it does
    /// nothing.
    pub fn tick(&mut self, now_ms: u64) -> Option<Change> {
        if self.settings.probing {
            return None;
        }
        let age_ms = now_ms.saturating_sub(self.since_ms);
        self.row.expire(now_ms, &self.settings);
        match self.standing {
            // Nine tenths, because the wait is jittered by one.
            HealthState::Down if age_ms >= self.dead_interval_ms / 10 * 9 => {
                let reason = format!("retrying after {age_ms} ms");
                self.change(now_ms, HealthState::Starting, reason)
            }
            HealthState::Starting if self.row.is_empty() && age_ms >= self.settings.window_ms() => {
                let reason = format!("no failure seen for {age_ms} ms");
                self.change(now_ms, HealthState::Up, reason)
            }
            _ => None,
        }
    }

    /// The verdict.
    pub fn state(&self) -> HealthState {
        self.standing
    }

    /// When the standing last changed.
    pub fn since_ms(&self) -> u64 {
        self.since_ms
    }

    /// What the last change was caused by.
    pub fn reason(&self) -> &str {
        &self.reason
    }

    /// Why the monitor account could not log in, until it can.
    pub fn monitor_problem(&self) -> Option<&str> {
        self.monitor_problem.as_deref()
    }

    /// When to probe (without probing: to `tick`) next, counted from the last probe, tick or
    /// change. Zero means at once: ask again after each passive sign.
    pub fn next_probe_in_ms(&self, random: u64) -> u64 {
        let interval_ms = self.settings.interval_ms;
        match self.standing {
            _ if self.probe_due => 0,
            HealthState::Down if self.passes > 0 => in_doubt_ms(interval_ms, random),
            HealthState::Down => jittered(self.dead_interval_ms, random),
            _ if !self.settings.probing => self.settings.window_ms(),
            // All servers start in one instant; their probes should not.
            HealthState::Starting => random % (interval_ms.min(1_000) + 1),
            HealthState::Up if !self.row.is_empty() => in_doubt_ms(interval_ms, random),
            HealthState::Up => jittered(interval_ms, random),
        }
    }

    /// Goes on under other settings; the standing and what was counted stay.
    pub fn update_settings(&mut self, settings: HealthSettings) {
        let cap_ms = settings.dead_interval_ms_max.max(1);
        self.dead_interval_ms = match self.standing {
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
        if self.standing == HealthState::Down {
            self.passes = 0;
            self.dead_interval_ms =
                grown(self.dead_interval_ms, self.settings.dead_interval_ms_max);
            return None;
        }
        self.row.add(now_ms, FailureSource::Probe, &self.settings);
        if self.standing == HealthState::Starting {
            return self.change(
                now_ms,
                HealthState::Down,
                format!("first probe failed: {why}"),
            );
        }
        if !self.row.is_full(&self.settings) {
            return None;
        }
        self.change(now_ms, HealthState::Down, self.row.reason(&why))
    }

    fn probe_passed(&mut self, now_ms: u64) -> Option<Change> {
        self.row.clear();
        match self.standing {
            HealthState::Up => None,
            HealthState::Starting => {
                self.change(now_ms, HealthState::Up, String::from("first probe passed"))
            }
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

    /// The one place where the standing changes.
    fn change(&mut self, now_ms: u64, to: HealthState, reason: String) -> Option<Change> {
        let from = self.standing;
        self.dead_interval_ms = match (from, to) {
            (HealthState::Starting, HealthState::Down) if self.half_open => {
                grown(self.dead_interval_ms, self.settings.dead_interval_ms_max)
            }
            (HealthState::Down, HealthState::Starting) => self.dead_interval_ms,
            _ => first_dead_interval_ms(&self.settings),
        };
        self.half_open = from == HealthState::Down && to == HealthState::Starting;
        self.standing = to;
        self.since_ms = now_ms;
        self.passes = 0;
        self.row.clear();
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
