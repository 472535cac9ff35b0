//! Work that somebody waits for: one line that is written over in place on a terminal, and elsewhere a line whenever it
//! comes to another stage and every ten seconds.

use std::io::{self, IsTerminal, Write};
use std::pin::pin;
use std::time::{Duration, Instant};

use futures_util::{Stream, StreamExt};
use tokio::time::timeout;

use super::{grouped, say, table::cut};

/// How often a log or a pipe is told.
const TOLD_EVERY: Duration = Duration::from_secs(10);
/// How often a terminal is, and how long quick work takes at most.
const SHOWN_EVERY: Duration = Duration::from_secs(1);
const BAR: usize = 20;
/// Of a terminal that does not tell.
const WIDTH: usize = 80;

#[derive(Debug, Default)]
pub(crate) struct Progress {
    shown: String,
    stage: String,
    told: Option<Instant>,
}

impl Progress {
    /// `text` begins with its stage.
    pub(crate) fn show(&mut self, stage: &str, text: &str, share: Option<f64>) {
        if io::stderr().is_terminal() {
            self.draw(&share.map_or_else(|| text.to_owned(), |share| format!("{} {text}", bar(share))));
        } else if self.is_due(stage, Instant::now()) && self.shown != text {
            say(text);
            self.shown = text.to_owned();
        }
    }

    fn draw(&mut self, text: &str) {
        let width =
            terminal_size::terminal_size_of(io::stderr()).map_or(WIDTH, |(width, _)| usize::from(width.0));
        let text = cut(text, width.saturating_sub(1));
        if text == self.shown {
            return;
        }
        let mut stderr = io::stderr().lock();
        let _ = write!(stderr, "\r\x1b[K{text}").and_then(|()| stderr.flush());
        self.shown = text;
    }

    fn is_due(&mut self, stage: &str, now: Instant) -> bool {
        let due = self.stage != stage || self.told.is_none_or(|told| now.duration_since(told) >= TOLD_EVERY);
        if due {
            stage.clone_into(&mut self.stage);
            self.told = Some(now);
        }
        due
    }

    /// Leaves the last line standing.
    pub(crate) fn finish(&mut self) {
        if !std::mem::take(&mut self.shown).is_empty() && io::stderr().is_terminal() {
            say("");
        }
    }
}

/// Work that tells nothing of itself, in a line that says for how long it has gone on. Quick work needs none.
pub(crate) async fn elapsing<T>(what: &str, work: impl Future<Output = T>) -> T {
    let (mut progress, began) = (Progress::default(), Instant::now());
    let mut work = pin!(work);
    loop {
        if let Ok(done) = timeout(SHOWN_EVERY, &mut work).await {
            progress.finish();
            return done;
        }
        progress.show(what, &format!("{what}: {} s", began.elapsed().as_secs()), None);
    }
}

/// Pieces of work in a line that says how many of them are done. The first that fails ends it.
pub(crate) async fn counting<T, E>(
    what: &str,
    total: usize,
    work: impl Stream<Item = Result<T, E>>,
) -> Result<Vec<T>, E> {
    let (mut progress, began, mut done) = (Progress::default(), Instant::now(), Vec::with_capacity(total));
    let mut work = pin!(work);
    let ended = loop {
        match timeout(SHOWN_EVERY, work.next()).await {
            Ok(Some(Ok(piece))) => done.push(piece),
            Ok(Some(Err(error))) => break Err(error),
            Ok(None) => break Ok(()),
            Err(_) => {}
        }
        let elapsed = began.elapsed();
        if elapsed >= SHOWN_EVERY {
            let pace = Pace { done: done.len() as u64, total: Some(total as u64), elapsed };
            let text = format!("{what}: {} of {total}, {} s", done.len(), elapsed.as_secs());
            progress.show(what, &text, pace.share());
        }
    };
    progress.finish();
    ended.map(|()| done)
}

/// How fast work goes on, and when it will be done.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Pace {
    pub(crate) done: u64,
    /// As far as anybody knows.
    pub(crate) total: Option<u64>,
    pub(crate) elapsed: Duration,
}

impl Pace {
    /// Of one second.
    pub(crate) fn rate(self) -> u64 {
        (self.done as f64 / self.elapsed.as_secs_f64().max(0.001)) as u64
    }

    pub(crate) fn share(self) -> Option<f64> {
        let total = self.total.filter(|total| *total > 0)?;
        Some((self.done as f64 / total as f64).min(1.0))
    }

    /// ` of about 5,000`
    pub(crate) fn of_total(self) -> String {
        let known = self.total.filter(|total| *total >= self.done && *total > 0);
        known.map(|total| format!(" of about {}", grouped(total))).unwrap_or_default()
    }

    /// `, 12 s left`
    pub(crate) fn left(self) -> String {
        let rest = self.total.and_then(|total| total.checked_sub(self.done));
        match (rest, self.rate()) {
            (Some(rest), rate @ 1..) => format!(", {} left", about(rest / rate)),
            _ => String::new(),
        }
    }
}

fn about(seconds: u64) -> String {
    match seconds {
        0..=99 => format!("{seconds} s"),
        100..=5999 => format!("{} min", seconds / 60),
        _ => format!("{} h", seconds / 3600),
    }
}

fn bar(share: f64) -> String {
    let full = (share.clamp(0.0, 1.0) * BAR as f64) as usize;
    format!("{}{} {:>3.0}%", "█".repeat(full), "░".repeat(BAR - full), share * 100.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bar_is_as_full_as_the_work_is_done() {
        assert_eq!(bar(0.0), "░░░░░░░░░░░░░░░░░░░░   0%");
        assert_eq!(bar(0.5), "██████████░░░░░░░░░░  50%");
        assert_eq!(bar(1.0), "████████████████████ 100%");
    }

    #[tokio::test]
    async fn pieces_of_work_are_answered_in_their_order_and_the_first_that_fails_ends_it() {
        let work = |last: Result<u32, &'static str>| futures_util::stream::iter([Ok(1), Ok(2), last, Ok(4)]);
        assert_eq!(counting("counts", 4, work(Ok(3))).await, Ok(vec![1, 2, 3, 4]));
        assert_eq!(counting("counts", 4, work(Err("no"))).await, Err("no"));
    }

    #[test]
    fn what_is_left_follows_from_the_pace() {
        let pace = Pace { done: 1_000, total: Some(5_000), elapsed: Duration::from_secs(2) };
        assert_eq!((pace.rate(), pace.left().as_str()), (500, ", 8 s left"));
        assert_eq!(pace.of_total(), " of about 5,000");
        let unknown = Pace { total: None, ..pace };
        assert_eq!(
            (unknown.left(), unknown.of_total(), unknown.share()),
            (String::new(), String::new(), None)
        );
        // More rows than the last time: nobody knows how many are left.
        let more = Pace { done: 6_000, ..pace };
        assert_eq!((more.left(), more.of_total()), (String::new(), String::new()));
    }

    #[test]
    fn a_log_is_told_of_every_stage_and_every_ten_seconds() {
        let (mut progress, start) = (Progress::default(), Instant::now());
        let seconds = |seconds| start + Duration::from_secs(seconds);
        assert!(progress.is_due("waiting", start));
        assert!(!progress.is_due("waiting", seconds(1)));
        assert!(progress.is_due("RUNNING", seconds(2)));
        assert!(!progress.is_due("RUNNING", seconds(11)));
        assert!(progress.is_due("RUNNING", seconds(12)));
    }
}
