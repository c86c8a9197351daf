//! Summarizes all trials of one kind as a row of the table.

use std::time::Duration;

use evenkeel_lab::scenario::How;

use super::BAR_MS;
use super::trial::Trial;
use crate::row;

#[derive(Default)]
pub(super) struct Tally {
    trials: Vec<Trial>,
}

pub(super) fn heading() -> Vec<String> {
    row![
        "",
        "change",
        "trials",
        "writable->write ms",
        "max",
        "bar",
        "outage ms",
        "max",
        "on old primary",
        "lost",
        "doubled",
        "refused but stored",
        "on two servers",
        "reads",
        "failed",
        "missing events",
    ]
}

impl Tally {
    pub(super) fn add(&mut self, trial: Trial) {
        self.trials.push(trial);
    }

    pub(super) fn row(&self, kind: &str, how: How) -> Vec<String> {
        let sum = |of: &dyn Fn(&Trial) -> usize| self.trials.iter().map(of).sum::<usize>();
        let reaction = spread(self.trials.iter().map(|trial| trial.reaction).collect());
        let outage = spread(self.trials.iter().map(|trial| trial.outage).collect());
        let bar = if reaction.1 <= BAR_MS {
            "met"
        } else {
            "missed"
        };
        let how = match how {
            How::Planned => "planned",
            How::Killed => "kill -9",
            How::Stopped => "stopped",
            How::Frozen => "frozen",
        };
        row![
            kind,
            how,
            self.trials.len(),
            reaction.0,
            reaction.1,
            bar,
            outage.0,
            outage.1,
            sum(&|trial| trial.left_behind),
            sum(&|trial| trial.lost),
            sum(&|trial| trial.doubled),
            sum(&|trial| trial.unexpected),
            sum(&|trial| trial.interleaved),
            sum(&|trial| trial.reads),
            sum(&|trial| trial.failed_reads.len()),
            sum(&|trial| trial.missing_events.len()),
        ]
    }
}

/// Returns the median and the maximum, in milliseconds.
fn spread(mut values: Vec<Duration>) -> (u128, u128) {
    values.sort();
    let at = |index: usize| values.get(index).map_or(0, Duration::as_millis);
    (at(values.len() / 2), at(values.len().saturating_sub(1)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_spread_is_the_median_and_the_largest() {
        let values = [30, 10, 900].map(Duration::from_millis).to_vec();
        assert_eq!(spread(values), (30, 900));
        assert_eq!(spread(Vec::new()), (0, 0));
    }
}
