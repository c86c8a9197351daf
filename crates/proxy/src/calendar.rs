//! Formats times by the Gregorian calendar.

use std::time::{SystemTime, UNIX_EPOCH};

/// Abbreviations of the months in fields of HTTP and in the Common Log Format.
pub const MONTHS: [&str; 12] = [
    "Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec",
];

/// Abbreviations of the days of the week; 1970-01-01 was the first of them.
const WEEKDAYS: [&str; 7] = ["Thu", "Fri", "Sat", "Sun", "Mon", "Tue", "Wed"];

/// Returns the current time as `Date` of HTTP has it.
pub(crate) fn http_date_now() -> String {
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    http_date(now.unwrap_or_default().as_secs())
}

/// Returns a Unix time as `Date` of HTTP has it: `Sun, 06 Nov 1994 08:49:37 GMT` (RFC 9110 §5.6.7).
fn http_date(seconds: u64) -> String {
    let (days, second) = (seconds / 86_400, seconds % 86_400);
    let (year, month, day) = civil_date(days);
    let (hour, minute, second) = (second / 3_600, second / 60 % 60, second % 60);
    let weekday = WEEKDAYS[usize::try_from(days % 7).unwrap_or_default()];
    let month = MONTHS[usize::try_from(month - 1).unwrap_or_default()];
    format!("{weekday}, {day:02} {month} {year:04} {hour:02}:{minute:02}:{second:02} GMT")
}

/// Returns the Gregorian date of a day counted from 1970-01-01.
pub fn civil_date(days: u64) -> (u64, u64, u64) {
    // Years counted from 1 March of year 0 end with the leap day, and the calendar repeats every
    // 400 years.
    let days = days + 719_468;
    let (era, day_of_era) = (days / 146_097, days % 146_097);
    let leap_corrected =
        day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096;
    let year_of_era = leap_corrected / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month_from_march = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month_from_march + 2) / 5 + 1;
    let month = if month_from_march < 10 {
        month_from_march + 3
    } else {
        month_from_march - 9
    };
    (era * 400 + year_of_era + u64::from(month <= 2), month, day)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates_of_http_have_a_fixed_form() {
        for (seconds, date) in [
            (0, "Thu, 01 Jan 1970 00:00:00 GMT"),
            (784_111_777, "Sun, 06 Nov 1994 08:49:37 GMT"),
            (1_709_251_199, "Thu, 29 Feb 2024 23:59:59 GMT"),
            (1_709_251_200, "Fri, 01 Mar 2024 00:00:00 GMT"),
            (4_102_444_799, "Thu, 31 Dec 2099 23:59:59 GMT"),
        ] {
            assert_eq!(http_date(seconds), date);
        }
    }
}
