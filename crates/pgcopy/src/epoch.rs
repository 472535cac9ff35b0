//! Postgres counts from 2000-01-01, Arrow from 1970-01-01. Infinities are the outermost integers on
//! both sides and stay where they are; a finite value that would land on one is out of range. So is
//! one that Postgres does not take: found here, it is one row's flaw; found there, it ends the COPY.

use std::ops::Range;

use crate::Flaw;
use crate::calendar::MICROSECONDS_PER_DAY as DAY;

const DAYS: i32 = 10_957;
const MICROSECONDS: i64 = DAYS as i64 * DAY;
/// From 4714-11-24 BC, the first Julian day, to the ends of 5874897 and 294276.
const POSTGRES_DAYS: Range<i32> = -2_451_545..2_145_031_949;
const POSTGRES_MICROSECONDS: Range<i64> = -2_451_545 * DAY..106_751_983 * DAY;

pub(crate) fn date_from_postgres(days: i32) -> Result<i32, Flaw> {
    shift_days(days, DAYS)
}

pub(crate) fn date_to_postgres(days: i32) -> Result<i32, Flaw> {
    let days = shift_days(days, -DAYS)?;
    let fits = is_infinite_day(days) || POSTGRES_DAYS.contains(&days);
    if fits { Ok(days) } else { Err(Flaw::OutOfRange) }
}

pub(crate) fn timestamp_from_postgres(microseconds: i64) -> Result<i64, Flaw> {
    shift_microseconds(microseconds, MICROSECONDS)
}

pub(crate) fn timestamp_to_postgres(microseconds: i64) -> Result<i64, Flaw> {
    let microseconds = shift_microseconds(microseconds, -MICROSECONDS)?;
    let fits = is_infinite_time(microseconds) || POSTGRES_MICROSECONDS.contains(&microseconds);
    if fits { Ok(microseconds) } else { Err(Flaw::OutOfRange) }
}

/// Both sides count a time of day from midnight; Postgres has 24:00:00 too.
pub(crate) fn time_of_day(microseconds: i64) -> Result<i64, Flaw> {
    if (0..=DAY).contains(&microseconds) { Ok(microseconds) } else { Err(Flaw::OutOfRange) }
}

fn shift_days(days: i32, by: i32) -> Result<i32, Flaw> {
    if is_infinite_day(days) {
        return Ok(days);
    }
    days.checked_add(by).filter(|shifted| !is_infinite_day(*shifted)).ok_or(Flaw::OutOfRange)
}

fn shift_microseconds(microseconds: i64, by: i64) -> Result<i64, Flaw> {
    if is_infinite_time(microseconds) {
        return Ok(microseconds);
    }
    microseconds.checked_add(by).filter(|shifted| !is_infinite_time(*shifted)).ok_or(Flaw::OutOfRange)
}

fn is_infinite_day(days: i32) -> bool {
    days == i32::MIN || days == i32::MAX
}

fn is_infinite_time(microseconds: i64) -> bool {
    microseconds == i64::MIN || microseconds == i64::MAX
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_postgres_epoch_is_2000_01_01() {
        assert_eq!(date_from_postgres(0), Ok(10_957));
        assert_eq!(timestamp_from_postgres(0), Ok(946_684_800_000_000));
        assert_eq!(date_to_postgres(0), Ok(-10_957));
        assert_eq!(timestamp_to_postgres(0), Ok(-946_684_800_000_000));
    }

    #[test]
    fn infinities_are_not_shifted() {
        for days in [i32::MIN, i32::MAX] {
            assert_eq!(date_from_postgres(days), Ok(days));
            assert_eq!(date_to_postgres(days), Ok(days));
        }
        for microseconds in [i64::MIN, i64::MAX] {
            assert_eq!(timestamp_from_postgres(microseconds), Ok(microseconds));
            assert_eq!(timestamp_to_postgres(microseconds), Ok(microseconds));
        }
    }

    #[test]
    fn a_finite_value_neither_overflows_nor_becomes_infinite() {
        assert_eq!(date_from_postgres(i32::MAX - 1), Err(Flaw::OutOfRange));
        assert_eq!(date_from_postgres(i32::MAX - DAYS), Err(Flaw::OutOfRange));
        assert_eq!(date_from_postgres(i32::MAX - DAYS - 1), Ok(i32::MAX - 1));
        assert_eq!(timestamp_from_postgres(i64::MAX - MICROSECONDS), Err(Flaw::OutOfRange));
        assert_eq!(timestamp_from_postgres(i64::MAX - MICROSECONDS - 1), Ok(i64::MAX - 1));
        assert_eq!(timestamp_to_postgres(i64::MIN + 1), Err(Flaw::OutOfRange));
    }

    #[test]
    fn a_value_that_postgres_does_not_take_is_out_of_range() {
        let (first, end) = (POSTGRES_DAYS.start + DAYS, POSTGRES_DAYS.end + DAYS);
        assert_eq!(date_to_postgres(first), Ok(POSTGRES_DAYS.start));
        assert_eq!(date_to_postgres(first - 1), Err(Flaw::OutOfRange));
        assert_eq!(date_to_postgres(end - 1), Ok(POSTGRES_DAYS.end - 1));
        assert_eq!(date_to_postgres(end), Err(Flaw::OutOfRange));
        let first = POSTGRES_MICROSECONDS.start + MICROSECONDS;
        assert_eq!(timestamp_to_postgres(first), Ok(POSTGRES_MICROSECONDS.start));
        assert_eq!(timestamp_to_postgres(first - 1), Err(Flaw::OutOfRange));
    }

    #[test]
    fn a_day_has_24_hours() {
        assert_eq!(time_of_day(DAY), Ok(DAY));
        assert_eq!(time_of_day(DAY + 1), Err(Flaw::OutOfRange));
        assert_eq!(time_of_day(-1), Err(Flaw::OutOfRange));
    }
}
