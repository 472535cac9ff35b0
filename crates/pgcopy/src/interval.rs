//! Intervals: months, days and a time, which Postgres counts in microseconds and Arrow in nanoseconds.

use arrow_buffer::IntervalMonthDayNano;

use crate::Flaw;

const NANOSECONDS: i64 = 1_000;

/// The infinite intervals of Postgres 17 are its outermost integers, so they are out of range too.
pub(crate) fn from_postgres(field: [u8; 16]) -> Result<IntervalMonthDayNano, Flaw> {
    let field = u128::from_be_bytes(field);
    let microseconds = (field >> 64) as i64;
    let days = (field >> 32) as i32;
    let months = field as i32;
    let nanoseconds = microseconds.checked_mul(NANOSECONDS).ok_or(Flaw::OutOfRange)?;
    Ok(IntervalMonthDayNano::new(months, days, nanoseconds))
}

pub(crate) fn to_postgres(interval: IntervalMonthDayNano) -> Result<[u8; 16], Flaw> {
    if interval.nanoseconds % NANOSECONDS != 0 {
        return Err(Flaw::Precision);
    }
    let mut field = [0; 16];
    field[..8].copy_from_slice(&(interval.nanoseconds / NANOSECONDS).to_be_bytes());
    field[8..12].copy_from_slice(&interval.days.to_be_bytes());
    field[12..].copy_from_slice(&interval.months.to_be_bytes());
    Ok(field)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn months_days_and_time_keep_their_own_signs() {
        let interval = IntervalMonthDayNano::new(-14, 3, -5_000_006_000);
        let field = to_postgres(interval).unwrap();
        assert_eq!(field[..8], (-5_000_006_i64).to_be_bytes());
        assert_eq!(from_postgres(field), Ok(interval));
    }

    #[test]
    fn an_infinite_interval_is_out_of_range() {
        let infinity = [&i64::MAX.to_be_bytes()[..], &[0x7f, 0xff, 0xff, 0xff], &[0x7f, 0xff, 0xff, 0xff]];
        let field = infinity.concat().try_into().unwrap();
        assert_eq!(from_postgres(field), Err(Flaw::OutOfRange));
    }

    #[test]
    fn a_fraction_of_a_microsecond_is_refused() {
        assert_eq!(to_postgres(IntervalMonthDayNano::new(0, 0, 1)), Err(Flaw::Precision));
    }
}
