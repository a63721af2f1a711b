//! Dates of the calendar from seconds since 1970, for certificates that end.

use std::time::{SystemTime, UNIX_EPOCH};

pub(super) const DAY: i64 = 86_400;

/// Seconds since 1970, by this machine's clock.
pub(super) fn seconds(time: SystemTime) -> i64 {
    match time.duration_since(UNIX_EPOCH) {
        Ok(since) => since.as_secs() as i64,
        Err(before) => -(before.duration().as_secs() as i64),
    }
}

/// `2026-03-01`, in UTC, of seconds since 1970. (The calendar repeats after 400 years of 146,097 days.)
pub(super) fn day(seconds: i64) -> String {
    const CYCLE: i64 = 146_097;
    // Years begin in March here, so that the leap day is the last.
    let days = seconds.div_euclid(DAY) + 719_468;
    let (cycle, of_cycle) = (days.div_euclid(CYCLE), days.rem_euclid(CYCLE));
    let year = (of_cycle - of_cycle / 1460 + of_cycle / 36_524 - of_cycle / (CYCLE - 1)) / 365;
    let of_year = of_cycle - (365 * year + year / 4 - year / 100);
    let month = (5 * of_year + 2) / 153;
    let of_month = of_year - (153 * month + 2) / 5 + 1;
    let (month, later) = if month < 10 { (month + 3, 0) } else { (month - 9, 1) };
    format!("{}-{month:02}-{of_month:02}", year + 400 * cycle + later)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Expected: what `date -u -d @SECONDS +%F` prints.
    #[test]
    fn days_are_those_of_the_calendar() {
        for (seconds, shown) in [
            (0, "1970-01-01"),
            (-1, "1969-12-31"),
            (951_782_400, "2000-02-29"),
            (951_868_800, "2000-03-01"),
            (1_709_164_799, "2024-02-28"),
            (1_709_164_800, "2024-02-29"),
            (1_798_761_599, "2026-12-31"),
            (4_107_542_400, "2100-03-01"),
            (4_107_542_399, "2100-02-28"),
        ] {
            assert_eq!(day(seconds), shown);
        }
    }
}
