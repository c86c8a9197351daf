//! Runs one trial of a pair, from calm to calm.

use std::time::{Duration, SystemTime};

use anyhow::{Context, Result, bail};

use super::super::super::experiment::{Fault, How};
use super::super::super::outcome::{FaultTrial, Probe};
use super::super::Seen;
use super::super::steps::{cut, ms};
use super::{Pair, address};
use crate::eventually;
use crate::network::Arrival;
use crate::web_probe::{self, Gap, Try, WebProbe, WebProbeOptions};

/// Successive answers required before and after a fault.
const CALM_ANSWERS: usize = 30;
/// Length of failures beyond the outage itself from which a note is added.
const DISTURBANCE: Duration = Duration::from_millis(100);
/// Limit for the answers to return.
const RETURN_LIMIT: Duration = Duration::from_secs(30);

pub(super) struct Trial<'a, 'p> {
    pub(super) pair: &'a mut Pair<'p>,
    pub(super) fault: &'a Fault,
}

/// The times of a trial's events.
struct Course {
    started: SystemTime,
    /// Time at which the standby had the address; `None` if it never did.
    moved: Option<SystemTime>,
    /// End of the interval in which outages count as the fault's and not the repair's.
    until: SystemTime,
    is_back: bool,
}

impl Trial<'_, '_> {
    pub(super) fn run(&mut self) -> Result<Seen> {
        let probe = WebProbe::start(WebProbeOptions::new(self.pair.shared, self.pair.page))?;
        wait_undisturbed(&probe, SystemTime::now()).context("answers before the fault")?;
        let course = self.course(&probe)?;
        self.pair.active.come_back().context("the return")?;
        self.pair.wait_settled()?;
        wait_undisturbed(&probe, SystemTime::now()).context("answers after the return")?;
        let tries = probe.finish();
        let note = other_failure(&tries, &course).map(|when| {
            let (target, fault) = (&self.pair.target.name, &self.fault.name);
            let limit = DISTURBANCE.as_millis();
            format!("{target}, {fault}: in some trial tries failed for more than {limit} ms {when}")
        });
        Ok(Seen {
            trial: trial(&tries, &course),
            note,
        })
    }

    fn course(&mut self, probe: &WebProbe) -> Result<Course> {
        let shared = address(self.pair.shared);
        let arrival = Arrival::watch(self.pair.standby.namespace(), shared);
        let started = SystemTime::now();
        self.inject_fault().context("the fault")?;
        let moved = arrival.wait(RETURN_LIMIT).ok();
        let is_back = wait_undisturbed(probe, moved.unwrap_or(started)).is_ok();
        Ok(Course {
            started,
            moved,
            until: SystemTime::now(),
            is_back,
        })
    }

    fn inject_fault(&mut self) -> Result<()> {
        let active = &mut self.pair.active;
        match self.fault.how {
            How::Kill => active.die(),
            How::Crash => active.crash(),
            How::Stop => active.hand_over(),
            How::Nothing => bail!("nothing is done to a balancer"),
        }
    }
}

/// Computes the outage that clients saw.
fn trial(tries: &[Try], course: &Course) -> FaultTrial {
    let started = course.started;
    let answered = tries.iter().filter(|one| one.failure.is_none()).count();
    let silence = web_probe::longest_silence(tries, started, course.until);
    let mut trial = FaultTrial {
        probe: Probe::Pages,
        acknowledged: answered as u64,
        failed: (tries.len() - answered) as u64,
        silence_ms: silence.map(|silence| silence.as_secs_f64() * 1000.0),
        ..FaultTrial::default()
    };
    let Some(gap) = outage(tries, course) else {
        return trial;
    };
    trial.first_error_ms = Some(ms(gap.first_error, started).max(0.0));
    let success_ms = gap.first_success.map(|success| ms(success, started));
    trial.first_success_ms = success_ms.filter(|_| course.is_back);
    if let Some(success_ms) = trial.first_success_ms {
        let moved_ms = course.moved.map(|moved| ms(moved, started));
        let cuts = [
            ("detect, decide and move", moved_ms),
            ("reconnect", Some(success_ms)),
        ];
        trial.steps = cut(&cuts, success_ms);
    }
    trial
}

/// Returns the longest outage of the fault, without those of the repair. A try that was in flight
/// at the fault belongs to the fault.
fn outage(tries: &[Try], course: &Course) -> Option<Gap> {
    let concerned: Vec<Try> = tries
        .iter()
        .filter(|one| one.ended >= course.started && one.started <= course.until)
        .cloned()
        .collect();
    let gaps = web_probe::gaps(&concerned).into_iter();
    gaps.max_by_key(|gap| {
        let end = gap.first_success.unwrap_or(course.until);
        let length = end.duration_since(gap.first_error).unwrap_or_default();
        (gap.first_success.is_none(), length)
    })
}

/// Returns in which other phase tries failed for a notable time.
fn other_failure(tries: &[Try], course: &Course) -> Option<&'static str> {
    let is_long = |gap: &Gap| {
        let end = gap.first_success.unwrap_or(gap.first_error);
        let length = end.duration_since(gap.first_error).unwrap_or_default();
        length > DISTURBANCE
    };
    let gaps = web_probe::gaps(tries);
    let mut long = gaps.iter().filter(|gap| is_long(gap));
    long.find_map(|gap| {
        if gap.first_error > course.until {
            return Some("when the first balancer took the address back");
        }
        let is_before = gap.first_success.is_some_and(|end| end < course.started);
        is_before.then_some("before the fault: this machine was busy")
    })
}

/// Waits until enough of the tries due since `since` were answered, including the last ones.
fn wait_undisturbed(probe: &WebProbe, since: SystemTime) -> Result<()> {
    eventually(RETURN_LIMIT, "answers in a row", || {
        let tries = probe.so_far();
        let last = tries.iter().rev().take_while(|one| one.failure.is_none());
        let count = last.filter(|one| one.started >= since).count();
        Ok((count >= CALM_ANSWERS).then_some(()))
    })
}

#[cfg(test)]
mod tests {
    use std::time::UNIX_EPOCH;

    use super::*;

    fn at(ms: u64) -> SystemTime {
        UNIX_EPOCH + Duration::from_millis(ms)
    }

    /// A try each 10 ms from 0 to 1000; tries due within one of `failing` fail.
    fn tries(failing: &[(u64, u64)]) -> Vec<Try> {
        let one = |due: u64| {
            let fails = failing
                .iter()
                .any(|(from, to)| (*from..=*to).contains(&due));
            Try {
                started: at(due),
                ended: at(due + if fails { 250 } else { 2 }),
                failure: fails.then(|| "no answer".to_owned()),
            }
        };
        (0..=100).map(|number| one(number * 10)).collect()
    }

    const COURSE: Course = Course {
        started: UNIX_EPOCH,
        moved: None,
        until: UNIX_EPOCH,
        is_back: true,
    };

    #[test]
    fn an_outage_is_cut_where_the_address_moved_and_that_of_the_return_is_not_its_own() {
        let course = Course {
            started: at(105),
            moved: Some(at(300)),
            until: at(700),
            ..COURSE
        };
        // The first failing try was in flight at the fault; the last ones belong to the repair.
        let seen = trial(&tries(&[(100, 310), (710, 990)]), &course);
        assert_eq!(
            (seen.first_error_ms, seen.first_success_ms),
            (Some(0.0), Some(217.0))
        );
        assert_eq!((seen.failed, seen.acknowledged), (22 + 29, 101 - 22 - 29));
        let steps: Vec<(f64, f64)> = seen
            .steps
            .iter()
            .map(|one| (one.from_ms, one.to_ms))
            .collect();
        assert_eq!(steps, [(0.0, 195.0), (195.0, 217.0)]);
        assert_eq!(seen.silence_ms, Some(230.0));
        let note = |failing| other_failure(&tries(failing), &course);
        assert_eq!(note(&[(100, 310), (710, 770)]), None);
        let back = "when the first balancer took the address back";
        assert_eq!(note(&[(100, 310), (710, 900)]), Some(back));
        let before = note(&[(0, 90), (110, 310)]);
        assert!(before.is_some_and(|when| when.starts_with("before the fault")));
    }

    #[test]
    fn an_outage_that_nothing_ended_has_no_end_and_no_steps() {
        let course = Course {
            started: at(100),
            until: at(600),
            is_back: false,
            ..COURSE
        };
        let seen = trial(&tries(&[(100, 650)]), &course);
        assert_eq!((seen.outage_ms(), seen.steps.len()), (None, 0));
        let calm = trial(&tries(&[]), &course);
        assert_eq!((calm.outage_ms(), calm.failed), (Some(0.0), 0));
    }
}
