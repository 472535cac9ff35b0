//! Dates and times of day in the parts and words that their texts share, whether Postgres, ISO 8601 or Python reads
//! them. Postgres knows years that the calendars of libraries do not.

pub const MICROSECONDS_PER_DAY: i64 = 86_400_000_000;
/// The Gregorian calendar repeats itself after so many years, which have so many days.
const CYCLE: (i64, i64) = (400, 146_097);
/// From 0000-03-01, where years begin with the day after a leap day, to 1970-01-01.
const EPOCH: i64 = 719_468;

/// Year, month and day so many days after 1970-01-01. The year before 1 is 0.
pub fn civil(days: i64) -> (i64, i64, i64) {
    let (cycles, day) = ((days + EPOCH).div_euclid(CYCLE.1), (days + EPOCH).rem_euclid(CYCLE.1));
    let year = (day - day / 1_460 + day / 36_524 - day / 146_096) / 365;
    let day = day - (365 * year + year / 4 - year / 100);
    let month = (5 * day + 2) / 153;
    let day = day - (153 * month + 2) / 5 + 1;
    let (year, month) = if month < 10 { (year, month + 3) } else { (year + 1, month - 9) };
    (year + cycles * CYCLE.0, month, day)
}

/// How many days after 1970-01-01 it is; `None` for a day that no calendar has.
pub fn days(year: i64, month: i64, day: i64) -> Option<i64> {
    if !(1..=12).contains(&month) || !(1..=31).contains(&day) {
        return None;
    }
    let (since, month) = if month > 2 { (year, month - 3) } else { (year.checked_sub(1)?, month + 9) };
    let (cycles, of_cycle) = (since.div_euclid(CYCLE.0), since.rem_euclid(CYCLE.0));
    let rest = 365 * of_cycle + of_cycle / 4 - of_cycle / 100 + (153 * month + 2) / 5 + day - 1;
    let days = cycles.checked_mul(CYCLE.1)?.checked_add(rest)?.checked_sub(EPOCH)?;
    // The 31st of April is another day of May.
    (civil(days).2 == day).then_some(days)
}

/// `24:00:00` is the end of a day. With as many digits behind the point as there are.
pub fn time(microseconds: i64) -> String {
    let (seconds, fraction) = (microseconds / 1_000_000, microseconds % 1_000_000);
    let whole = format!("{:02}:{:02}:{:02}", seconds / 3600, seconds / 60 % 60, seconds % 60);
    match fraction {
        0 => whole,
        fraction => format!("{whole}.{fraction:06}").trim_end_matches('0').to_owned(),
    }
}

/// The decoder keeps infinite dates as the extremes of their type.
pub fn infinite_date(days: i32) -> Option<&'static str> {
    infinity(days, i32::MIN, i32::MAX)
}

/// As `infinite_date`, of a timestamp.
pub fn infinite_timestamp(microseconds: i64) -> Option<&'static str> {
    infinity(microseconds, i64::MIN, i64::MAX)
}

fn infinity<T: PartialEq + Copy>(value: T, lowest: T, highest: T) -> Option<&'static str> {
    match value {
        value if value == lowest => Some("-infinity"),
        value if value == highest => Some("infinity"),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn days_and_dates_lead_to_each_other_in_every_year_that_postgres_knows() {
        for (day, date) in [
            (0, (1970, 1, 1)),
            (-1, (1969, 12, 31)),
            (11_016, (2000, 2, 29)),
            (-719_162, (1, 1, 1)),
            (-719_163, (0, 12, 31)),
            (-2_440_588, (-4713, 11, 24)),
            (2_145_031_948, (5_874_868, 1, 1)),
        ] {
            assert_eq!((civil(day), days(date.0, date.1, date.2)), (date, Some(day)));
        }
        for day in (-1_000_000..1_000_000).step_by(7) {
            let (year, month, of_month) = civil(day);
            assert_eq!(days(year, month, of_month), Some(day));
        }
    }

    #[test]
    fn a_day_that_no_calendar_has_is_none() {
        for (year, month, day) in
            [(2023, 2, 29), (1900, 2, 29), (2024, 4, 31), (2024, 13, 1), (2024, 0, 1), (2024, 1, 0)]
        {
            assert_eq!(days(year, month, day), None, "{year}-{month}-{day}");
        }
        assert_eq!(days(i64::MIN, 1, 1), None);
        assert_eq!(days(i64::MAX, 1, 1), None);
    }

    #[test]
    fn times_have_as_many_digits_as_they_need() {
        assert_eq!(time(0), "00:00:00");
        assert_eq!(time(45_296_500_000), "12:34:56.5");
        assert_eq!(time(45_296_000_001), "12:34:56.000001");
        assert_eq!(time(MICROSECONDS_PER_DAY), "24:00:00");
    }
}
