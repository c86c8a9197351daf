//! Displays progress: one live line on a terminal, permanent lines elsewhere.

use std::io::{IsTerminal, Write, stderr};
use std::time::{Duration, Instant};

/// Progress of the whole run.
pub(crate) struct Progress {
    live: bool,
    started: Instant,
    /// Planned duration of all steps, in seconds.
    planned_s: f64,
    /// Planned duration of the completed steps, in seconds.
    done_s: f64,
    /// Planned duration, in seconds, of steps that a resumed run skips.
    skipped_s: f64,
}

impl Progress {
    pub(crate) fn new(planned: Duration) -> Progress {
        Progress {
            live: stderr().is_terminal(),
            started: Instant::now(),
            planned_s: planned.as_secs_f64(),
            done_s: 0.0,
            skipped_s: 0.0,
        }
    }

    /// Prints a permanent line.
    pub(crate) fn event(&self, text: &str) {
        self.clear();
        let _ = writeln!(stderr(), "{:>8}  {text}", short(self.started.elapsed()));
    }

    /// Shows the current step on the live line.
    pub(crate) fn now(&self, text: &str) {
        if self.live {
            let _ = write!(stderr(), "\r\x1b[K{:>8} left  {text}", short(self.left()));
            let _ = stderr().flush();
        }
    }

    /// Counts a step of this planned duration as completed.
    pub(crate) fn done(&mut self, planned: Duration) {
        self.done_s += planned.as_secs_f64();
    }

    /// Counts a step of this planned duration as skipped.
    pub(crate) fn skipped(&mut self, planned: Duration) {
        self.skipped_s += planned.as_secs_f64();
    }

    /// Returns the remaining time: the planned one, corrected by the pace so far.
    pub(crate) fn left(&self) -> Duration {
        let left = (self.planned_s - self.done_s - self.skipped_s).max(0.0);
        let took = self.started.elapsed().as_secs_f64();
        // The first minute is not representative.
        let pace = if took > 60.0 && self.done_s > 30.0 {
            (took / self.done_s).clamp(0.5, 4.0)
        } else {
            1.0
        };
        Duration::from_secs_f64(left * pace)
    }

    pub(crate) fn clear(&self) {
        if self.live {
            let _ = write!(stderr(), "\r\x1b[K");
        }
    }
}

/// Formats a duration: `1 h 05 min`, `4 min 10 s`, `7 s`.
pub(crate) fn short(span: Duration) -> String {
    let s = span.as_secs();
    match s {
        0..60 => format!("{s} s"),
        60..3600 => format!("{} min {:02} s", s / 60, s % 60),
        _ => format!("{} h {:02} min", s / 3600, s / 60 % 60),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spans_are_written_as_people_say_them() {
        let written = [7, 250, 3900].map(|s| short(Duration::from_secs(s)));
        assert_eq!(written, ["7 s", "4 min 10 s", "1 h 05 min"]);
    }

    #[test]
    fn what_is_done_or_skipped_is_not_left() {
        let mut progress = Progress::new(Duration::from_secs(100));
        progress.done(Duration::from_secs(30));
        progress.skipped(Duration::from_secs(20));
        assert_eq!(progress.left(), Duration::from_secs(50));
    }
}
