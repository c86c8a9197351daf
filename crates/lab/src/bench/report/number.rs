//! Formats numbers for readers: significant digits only, with separators of thousands.

use std::time::Duration;

/// Formats with three or more digits: `34,994`, `683`, `16.8`, `2.74`, `0.213`.
pub(super) fn short(value: f64) -> String {
    if !value.is_finite() {
        return "–".to_owned();
    }
    let size = value.abs();
    let decimals = match size {
        _ if size == 0.0 || size >= 100.0 => 0,
        _ if size >= 10.0 => 1,
        _ if size >= 1.0 => 2,
        _ => 3,
    };
    let text = format!("{value:.decimals$}");
    if size >= 1_000.0 { apart(&text) } else { text }
}

/// Formats a count.
pub(super) fn count(value: u64) -> String {
    apart(&value.to_string())
}

/// Formats for an axis, with the digits that the step requires.
pub(super) fn on_axis(value: f64, step: f64) -> String {
    let decimals = (-step.abs().log10().floor()).clamp(0.0, 6.0) as usize;
    // A step of 2.5 needs one decimal more than one of 2.
    let exact = |decimals: usize| {
        let scaled = step * 10f64.powi(decimals as i32);
        (scaled - scaled.round()).abs() < 1e-6
    };
    let decimals = if exact(decimals) {
        decimals
    } else {
        decimals + 1
    };
    let text = format!("{value:.decimals$}");
    if value.abs() >= 1_000.0 {
        apart(&text)
    } else {
        text
    }
}

/// Formats a ratio: `1.87`, `12.4`, `0.052`.
pub(super) fn ratio(value: f64) -> String {
    match value {
        _ if !value.is_finite() => "–".to_owned(),
        _ if value >= 10.0 => format!("{value:.1}"),
        _ if value >= 0.1 => format!("{value:.2}"),
        _ => format!("{value:.3}"),
    }
}

fn apart(text: &str) -> String {
    let whole = text.find('.').unwrap_or(text.len());
    let (digits, rest) = text.split_at(whole);
    let mut spaced = String::new();
    for (index, digit) in digits.chars().enumerate() {
        let after = digits.len() - index;
        if index > 0 && after.is_multiple_of(3) && !spaced.ends_with('-') {
            spaced.push(',');
        }
        spaced.push(digit);
    }
    spaced + rest
}

/// Formats a time: `2026-11-21 00:07 UTC`.
pub(super) fn moment(unix_s: u64) -> String {
    let (days, second) = (unix_s / 86_400, unix_s % 86_400);
    let (year, month, day) = date(days);
    let (hour, minute) = (second / 3_600, second / 60 % 60);
    format!("{year}-{month:02}-{day:02} {hour:02}:{minute:02} UTC")
}

/// Returns year, month and day for the days since 1970, by Howard Hinnant's `civil_from_days`.
/// Years that begin in March have the leap day at the end.
fn date(days: u64) -> (u64, u64, u64) {
    let shifted = days + 719_468;
    let (era, of_era) = (shifted / 146_097, shifted % 146_097);
    let year_of_era = (of_era - of_era / 1_460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let from_march = (5 * of_year + 2) / 153;
    let day = of_year - (153 * from_march + 2) / 5 + 1;
    let month = if from_march < 10 {
        from_march + 3
    } else {
        from_march - 9
    };
    (year_of_era + era * 400 + u64::from(month <= 2), month, day)
}

/// Formats a duration: `48 s`, `12 min`, `2 h 05 min`.
pub(super) fn length(length: Duration) -> String {
    let seconds = length.as_secs();
    match seconds {
        0..120 => format!("{seconds} s"),
        120..7_200 => format!("{} min", (seconds + 30) / 60),
        _ => format!("{} h {:02} min", seconds / 3_600, seconds / 60 % 60),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn digits_that_mean_something() {
        for (value, expect) in [
            (34_994.4, "34,994"),
            (1_234_567.0, "1,234,567"),
            (-1_234.0, "-1,234"),
            (-123_456.0, "-123,456"),
            (682.78, "683"),
            (16.8, "16.8"),
            (2.744, "2.74"),
            (0.2131, "0.213"),
            (0.0, "0"),
            (f64::NAN, "–"),
        ] {
            assert_eq!(short(value), expect);
        }
    }

    #[test]
    fn an_axis_has_the_digits_of_its_step() {
        for (value, step, expect) in [
            (20_000.0, 5_000.0, "20,000"),
            (2.5, 2.5, "2.5"),
            (5.0, 2.5, "5.0"),
            (0.25, 0.05, "0.25"),
            (100.0, 50.0, "100"),
        ] {
            assert_eq!(on_axis(value, step), expect);
        }
    }

    #[test]
    fn moments_are_the_calendars() {
        assert_eq!(moment(0), "1970-01-01 00:00 UTC");
        assert_eq!(moment(951_782_400), "2000-02-29 00:00 UTC");
        assert_eq!(moment(1_795_219_631), "2026-11-21 00:07 UTC");
        assert_eq!(moment(4_107_542_399), "2100-02-28 23:59 UTC");
        assert_eq!(moment(4_107_542_400), "2100-03-01 00:00 UTC");
    }

    #[test]
    fn lengths_have_one_unit_or_two() {
        let of = |seconds| length(Duration::from_secs(seconds));
        assert_eq!(
            (of(48), of(750), of(7_500)),
            ("48 s".into(), "13 min".into(), "2 h 05 min".into())
        );
    }
}
