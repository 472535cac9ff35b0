//! When a pipeline runs by itself.
#![allow(clippy::unwrap_used)] // the verbs of a test may panic as the test itself may

use jiff::Timestamp;
use rstest::rstest;
use uuid::Uuid;
use vitrina_core::{PipelineId, Schedule};

fn at(text: &str) -> Timestamp {
    text.parse().unwrap()
}

fn pipeline(number: u128) -> PipelineId {
    PipelineId(Uuid::from_u128(number))
}

/// The times that a schedule has after one, as they follow each other.
fn times(schedule: &str, from: &str, count: usize) -> Vec<String> {
    let schedule: Schedule = schedule.parse().unwrap();
    let mut now = at(from);
    let mut next = || {
        now = schedule.next(pipeline(7), now).unwrap();
        now.to_string()
    };
    (0..count).map(|_| next()).collect()
}

#[rstest]
#[case::seconds("90s")]
#[case::minutes("5m")]
#[case::mixed("1h30m")]
#[case::days("1d")]
#[case::weeks("2w")]
#[case::words("2 hours")]
#[case::iso("PT15M")]
#[case::cron("*/5 * * * *")]
#[case::names("0 3 * JAN MON-FRI")]
#[case::nickname("@daily")]
#[case::zoned("CRON_TZ=Europe/Berlin 0 3 * * *")]
#[case::with_jitter("0 3 * * * ~10m")]
fn what_is_a_schedule(#[case] text: &str) {
    text.parse::<Schedule>().unwrap();
}

#[rstest]
#[case::empty("", "no length of time")]
#[case::words("often", "no length of time")]
#[case::a_number_without_a_unit("300", "no length of time")]
#[case::too_often("10ms", "too short")]
#[case::negative("-5m", "too short")]
#[case::for_ever("100000h", "too long")]
#[case::too_many_fields("0 0 3 * * * *", "no cron pattern")]
#[case::no_such_hour("0 25 * * *", "no cron pattern")]
#[case::no_such_date("0 0 30 2 *", "never comes")]
#[case::no_such_zone("CRON_TZ=Moon/Base 0 3 * * *", "no time zone")]
#[case::no_such_jitter("5m ~soon", "no length of time")]
#[case::a_month("1mo", "no length of time")]
#[case::jitter_longer_than_the_interval("5m ~6m", "longer than the interval")]
fn what_is_none_is_told_with_what_would_be(#[case] text: &str, #[case] why: &str) {
    let error = text.parse::<Schedule>().unwrap_err().to_string();
    assert!(error.contains(why) && error.contains("write an interval such as 5m"), "{error}");
}

#[test]
fn an_interval_keeps_its_beat_and_what_was_missed_is_run_once() {
    let two = times("5m", "2026-03-01T00:00:00Z", 2);
    assert_eq!(at(&two[1]).duration_since(at(&two[0])).as_secs(), 300);
    let schedule: Schedule = "5m".parse().unwrap();
    let after_an_hour = schedule.next(pipeline(7), at("2026-03-01T01:00:00Z")).unwrap();
    assert!(after_an_hour > at("2026-03-01T01:00:00Z") && after_an_hour <= at("2026-03-01T01:05:00Z"));
    assert_eq!(after_an_hour.duration_since(at(&two[0])).as_secs() % 300, 0);
}

#[test]
fn pipelines_of_the_same_interval_do_not_all_run_at_once() {
    let schedule: Schedule = "1h".parse().unwrap();
    let now = at("2026-03-01T00:00:00Z");
    let mut starts: Vec<_> = (0..20).map(|number| schedule.next(pipeline(number), now)).collect();
    starts.sort();
    starts.dedup();
    assert!(starts.len() > 15, "{starts:?}");
}

#[test]
fn cron_is_that_of_its_time_zone() {
    assert_eq!(times("0 3 * * *", "2026-01-10T00:00:00Z", 1), ["2026-01-10T03:00:00Z"]);
    assert_eq!(times("CRON_TZ=Europe/Berlin 0 3 * * *", "2026-01-10T00:00:00Z", 1), ["2026-01-10T02:00:00Z"]);
    assert_eq!(times("CRON_TZ=Europe/Berlin 0 3 * * *", "2026-07-10T00:00:00Z", 1), ["2026-07-10T01:00:00Z"]);
    assert_eq!(times("0 0 * * SUN", "2026-11-13T00:00:00Z", 1), ["2026-11-15T00:00:00Z"], "Sunday is 0");
}

/// On 29 March 2026 clocks in Berlin go from 2 to 3, and on 25 October from 3 back to 2.
#[test]
fn the_night_that_loses_an_hour_has_its_run_and_the_one_that_gains_it_has_one() {
    let berlin = "CRON_TZ=Europe/Berlin 30 2 * * *";
    assert_eq!(times(berlin, "2026-03-28T12:00:00Z", 2), ["2026-03-29T01:00:00Z", "2026-03-30T00:30:00Z"]);
    assert_eq!(times(berlin, "2026-10-24T12:00:00Z", 2), ["2026-10-25T00:30:00Z", "2026-10-26T01:30:00Z"]);
    let hourly = times("CRON_TZ=Europe/Berlin 0 * * * *", "2026-10-24T23:30:00Z", 3);
    assert_eq!(hourly, ["2026-10-25T00:00:00Z", "2026-10-25T01:00:00Z", "2026-10-25T02:00:00Z"]);
}

/// With several hours it is the wall clock that counts: what it leaves out is left out, what it shows twice is run twice.
#[test]
fn of_several_hours_those_that_a_night_leaves_out_or_repeats_are_left_out_or_repeated() {
    let berlin = "CRON_TZ=Europe/Berlin 30 2,14 * * *";
    assert_eq!(times(berlin, "2026-03-28T14:00:00Z", 1), ["2026-03-29T12:30:00Z"]);
    assert_eq!(times(berlin, "2026-10-24T14:00:00Z", 2), ["2026-10-25T00:30:00Z", "2026-10-25T01:30:00Z"]);
}

#[test]
fn jitter_delays_by_no_more_than_it_says_and_skips_no_beat() {
    // Past the longest delay of the beat before, so that both lists begin with the same beat.
    let plain = times("*/10 * * * *", "2026-03-01T00:05:00Z", 50);
    let delayed = times("*/10 * * * * ~4m", "2026-03-01T00:05:00Z", 50);
    let delays: Vec<i64> =
        plain.iter().zip(&delayed).map(|(a, b)| at(b).duration_since(at(a)).as_secs()).collect();
    assert!(delays.iter().all(|delay| (0..=240).contains(delay)), "{delays:?}");
    assert!(delays.iter().max() > Some(&180) && delays.iter().min() < Some(&60), "{delays:?}");
}
