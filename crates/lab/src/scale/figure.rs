//! One measured figure, with the limit that it must keep.

use std::fmt;
use std::time::Duration;

/// Limit of a figure.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Bar {
    /// Milliseconds that may not be exceeded.
    AtMostMs(f64),
}

/// A measured value.
#[derive(Clone, Debug)]
pub struct Figure {
    name: String,
    value: f64,
    unit: &'static str,
    bar: Option<Bar>,
    note: String,
}

impl Figure {
    pub(super) fn new(name: &str, time: Duration) -> Figure {
        Figure::number(name, time.as_secs_f64() * 1e3, "ms")
    }

    pub(super) fn number(name: &str, value: f64, unit: &'static str) -> Figure {
        Figure {
            name: name.to_owned(),
            value,
            unit,
            bar: None,
            note: String::new(),
        }
    }

    pub(super) fn kilobytes(name: &str, kilobytes: u64) -> Figure {
        Figure::number(name, kilobytes as f64 / 1e3, "MB")
    }

    pub(super) fn bar(self, bar: Bar) -> Figure {
        let bar = Some(bar);
        Figure { bar, ..self }
    }

    pub(super) fn note(self, note: String) -> Figure {
        Figure { note, ..self }
    }

    /// Returns the limit in milliseconds. `None`: the figure has no limit.
    pub fn bar_ms(&self) -> Option<f64> {
        self.bar.map(|Bar::AtMostMs(ms)| ms)
    }

    /// Returns whether the value exceeds its limit multiplied by `factor`, for slower machines and
    /// builds.
    pub fn is_missed(&self, factor: f64) -> bool {
        self.bar_ms().is_some_and(|ms| self.value > ms * factor)
    }

    /// Returns name, value, limit and remark, for a table.
    pub fn row(&self) -> Vec<String> {
        let decimals = if self.value < 10.0 { 2 } else { 0 };
        let bar = match self.bar {
            Some(Bar::AtMostMs(ms)) if self.is_missed(1.0) => format!("≤ {ms} ms: MISSED"),
            Some(Bar::AtMostMs(ms)) => format!("≤ {ms} ms"),
            None => String::new(),
        };
        let value = format!("{:.decimals$} {}", self.value, self.unit);
        vec![self.name.clone(), value, bar, self.note.clone()]
    }
}

impl fmt::Display for Figure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.row().join(", ").trim_end_matches(", "))
    }
}

/// Returns the median of the times; zero if there is none.
pub(super) fn median_ms(times: &mut [Duration]) -> f64 {
    times.sort();
    let median = times.get(times.len() / 2);
    median.map_or(0.0, |time| time.as_secs_f64() * 1e3)
}

/// Returns the longest of the times; zero if there is none.
pub(super) fn longest_ms(times: &[Duration]) -> f64 {
    let longest = times.iter().max();
    longest.map_or(0.0, |time| time.as_secs_f64() * 1e3)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_figure_is_missed_above_its_bar_only() {
        let figure = |ms| Figure::number("one change", ms, "ms").bar(Bar::AtMostMs(5.0));
        assert!(!figure(5.0).is_missed(1.0) && figure(5.1).is_missed(1.0));
        assert!(!figure(9.9).is_missed(2.0) && figure(10.1).is_missed(2.0));
        assert!(!Figure::number("memory", 1e9, "MB").is_missed(1.0));
        assert_eq!(
            figure(5.1).to_string(),
            "one change, 5.10 ms, ≤ 5 ms: MISSED"
        );
    }

    #[test]
    fn medians_and_maxima_are_in_milliseconds() {
        let mut times = [3, 1, 2].map(Duration::from_millis);
        assert_eq!((median_ms(&mut times), longest_ms(&times)), (2.0, 3.0));
        assert_eq!((median_ms(&mut []), longest_ms(&[])), (0.0, 0.0));
    }
}
