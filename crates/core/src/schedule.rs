//! When a pipeline runs by itself: every so often, or by cron in a time zone.

use std::fmt;
use std::str::FromStr;

use croner::Cron;
use croner::parser::{CronParser, Seconds, Year};
use jiff::tz::TimeZone;
use jiff::{SignedDuration, Span, SpanRelativeTo, Timestamp};
use sha2::{Digest, Sha256};

use crate::PipelineId;

/// `5m`, `0 3 * * *`, `CRON_TZ=Europe/Berlin 0 3 * * MON-FRI`, `@hourly`, each with ` ~30s` behind it where runs may
/// begin up to that much later.
#[derive(Debug, Clone)]
pub struct Schedule {
    beat: Beat,
    jitter: SignedDuration,
}

#[derive(Debug, Clone)]
enum Beat {
    Every(SignedDuration),
    Cron(Box<Cron>, TimeZone),
}

/// What a schedule looks like, for whoever has written something else.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NoSchedule(String);

const SHORTEST: SignedDuration = SignedDuration::from_secs(1);
const LONGEST: SignedDuration = SignedDuration::from_hours(24 * 366);

impl fmt::Display for NoSchedule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{}; write an interval such as 5m or 1h30m, or cron such as `0 3 * * *` or `CRON_TZ=Europe/Berlin 0 3 * * *`",
            self.0
        )
    }
}

impl std::error::Error for NoSchedule {}

impl FromStr for Schedule {
    type Err = NoSchedule;

    fn from_str(text: &str) -> Result<Self, NoSchedule> {
        let (beat, jitter) = match text.rsplit_once('~') {
            Some((beat, jitter)) => (beat.trim(), duration(jitter, SignedDuration::ZERO)?),
            None => (text.trim(), SignedDuration::ZERO),
        };
        let is_cron = beat.starts_with('@') || beat.starts_with(ZONE) || beat.split_whitespace().count() >= 5;
        let beat = if is_cron { cron(beat)? } else { Beat::Every(duration(beat, SHORTEST)?) };
        match beat {
            Beat::Every(length) if jitter > length => {
                Err(NoSchedule("the time behind ~ is longer than the interval".to_owned()))
            }
            beat => Ok(Self { beat, jitter }),
        }
    }
}

const ZONE: &str = "CRON_TZ=";

fn cron(text: &str) -> Result<Beat, NoSchedule> {
    let (zone, pattern) = match text.strip_prefix(ZONE) {
        Some(rest) => rest.split_once(char::is_whitespace).unwrap_or((rest, "")),
        None => ("UTC", text),
    };
    let zone = TimeZone::get(zone).map_err(|_| NoSchedule(format!("{zone:?} is no time zone")))?;
    let parser = CronParser::builder().seconds(Seconds::Disallowed).year(Year::Disallowed).build();
    let cron = parser.parse(pattern.trim());
    let cron = cron.map_err(|error| NoSchedule(format!("{pattern:?} is no cron pattern: {error}")))?;
    if cron.find_next_occurrence(&Timestamp::UNIX_EPOCH.to_zoned(zone.clone()), true).is_err() {
        return Err(NoSchedule(format!("{pattern:?} never comes")));
    }
    Ok(Beat::Cron(Box::new(cron), zone))
}

fn duration(text: &str, least: SignedDuration) -> Result<SignedDuration, NoSchedule> {
    let text = text.trim();
    let unreadable = |_| NoSchedule(format!("{text:?} is no length of time"));
    // Days and weeks are lengths here, not dates.
    let span: Span = text.parse().map_err(unreadable)?;
    let duration = span.to_duration(SpanRelativeTo::days_are_24_hours()).map_err(unreadable)?;
    if !(least..=LONGEST).contains(&duration) {
        return Err(NoSchedule(format!("{text} is too short or too long")));
    }
    Ok(duration)
}

impl Schedule {
    /// The first time to run after `now`, however many were missed. The same for everybody who asks. `None` when
    /// there is none any more.
    pub fn next(&self, pipeline: PipelineId, now: Timestamp) -> Option<Timestamp> {
        // A beat before now may be delayed until after.
        let mut beat = now.checked_sub(self.jitter).ok()?;
        loop {
            beat = self.beat(pipeline, beat)?;
            let time = beat
                .checked_add(self.jitter.mul_f64(share(&[&pipeline.to_string(), &beat.to_string()])))
                .ok()?;
            if time > now {
                return Some(time);
            }
        }
    }

    /// The first beat after `from`. Pipelines with the same interval beat at different moments.
    fn beat(&self, pipeline: PipelineId, from: Timestamp) -> Option<Timestamp> {
        match &self.beat {
            Beat::Every(length) => {
                let phase = length.mul_f64(share(&[&pipeline.to_string()]));
                let (length, since) = (length.as_nanos(), from.as_nanosecond() - phase.as_nanos());
                Timestamp::from_nanosecond(from.as_nanosecond() + length - since.rem_euclid(length)).ok()
            }
            Beat::Cron(cron, zone) => {
                let next = cron.find_next_occurrence(&from.to_zoned(zone.clone()), false).ok()?;
                Some(next.timestamp())
            }
        }
    }
}

/// From 0 up to 1, the same for the same words.
fn share(words: &[&str]) -> f64 {
    let digest = Sha256::digest(words.join(" ").as_bytes());
    f64::from(u16::from_be_bytes([digest[0], digest[1]])) / f64::from(u16::MAX)
}
