//! Postgres counts from 2000-01-01, Arrow from 1970-01-01. Infinities are the outermost integers on
//! both sides and stay where they are; a finite value that would land on one is out of range.

use crate::Flaw;

const DAYS: i32 = 10_957;
const MICROSECONDS: i64 = DAYS as i64 * 86_400 * 1_000_000;

pub(crate) fn date_from_postgres(days: i32) -> Result<i32, Flaw> {
    shift_days(days, DAYS)
}

pub(crate) fn date_to_postgres(days: i32) -> Result<i32, Flaw> {
    shift_days(days, -DAYS)
}

pub(crate) fn timestamp_from_postgres(microseconds: i64) -> Result<i64, Flaw> {
    shift_microseconds(microseconds, MICROSECONDS)
}

pub(crate) fn timestamp_to_postgres(microseconds: i64) -> Result<i64, Flaw> {
    shift_microseconds(microseconds, -MICROSECONDS)
}

fn shift_days(days: i32, by: i32) -> Result<i32, Flaw> {
    let infinite = |days: i32| days == i32::MIN || days == i32::MAX;
    if infinite(days) {
        return Ok(days);
    }
    days.checked_add(by).filter(|shifted| !infinite(*shifted)).ok_or(Flaw::OutOfRange)
}

fn shift_microseconds(microseconds: i64, by: i64) -> Result<i64, Flaw> {
    let infinite = |microseconds: i64| microseconds == i64::MIN || microseconds == i64::MAX;
    if infinite(microseconds) {
        return Ok(microseconds);
    }
    microseconds.checked_add(by).filter(|shifted| !infinite(*shifted)).ok_or(Flaw::OutOfRange)
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
        assert_eq!(timestamp_to_postgres(i64::MIN + 1), Err(Flaw::OutOfRange));
        assert_eq!(timestamp_to_postgres(i64::MIN + MICROSECONDS), Err(Flaw::OutOfRange));
        assert_eq!(timestamp_to_postgres(i64::MIN + MICROSECONDS + 1), Ok(i64::MIN + 1));
    }
}
