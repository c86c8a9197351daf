//! Splits an outage into steps at the known times.

use std::time::SystemTime;

use super::super::outcome::FaultStep;

/// Returns successive steps. A step without a known end is part of the next one, as is a step whose
/// end was reported after the end of the next.
pub(super) fn cut(cuts: &[(&str, Option<f64>)], end_ms: f64) -> Vec<FaultStep> {
    let mut from_ms = 0.0;
    let mut steps = Vec::new();
    let mut name = String::new();
    for (place, (word, at_ms)) in cuts.iter().enumerate() {
        if !name.is_empty() {
            name.push_str(", ");
        }
        name.push_str(word);
        let mut later = cuts[place + 1..]
            .iter()
            .filter_map(|(_, later_ms)| *later_ms);
        let Some(at_ms) = at_ms.filter(|at_ms| later.all(|later_ms| *at_ms <= later_ms)) else {
            continue;
        };
        let to_ms = at_ms.clamp(from_ms, end_ms.max(from_ms));
        steps.push(FaultStep {
            name: std::mem::take(&mut name),
            from_ms,
            to_ms,
        });
        from_ms = to_ms;
    }
    steps
}

/// Returns the ms from `start` to `instant`; negative if it is earlier.
pub(super) fn ms(instant: SystemTime, start: SystemTime) -> f64 {
    match instant.duration_since(start) {
        Ok(later) => later.as_secs_f64() * 1000.0,
        Err(earlier) => -earlier.duration().as_secs_f64() * 1000.0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_step_that_is_not_told_or_was_not_waited_for_joins_the_next() {
        let cuts = [
            ("detect", None),
            ("promote", Some(300.0)),
            ("route", Some(800.0)),
            ("reconnect", Some(420.0)),
        ];
        let steps = cut(&cuts, 420.0);
        let reported: Vec<(&str, f64, f64)> = steps
            .iter()
            .map(|step| (step.name.as_str(), step.from_ms, step.to_ms))
            .collect();
        let expected = [
            ("detect, promote", 0.0, 300.0),
            ("route, reconnect", 300.0, 420.0),
        ];
        assert_eq!(reported, expected);
    }
}
