//! How fast the machine is at the moment: a storm on two cores slows down what it storms on, and what takes time is held
//! against a limit of the same moment.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use anyhow::Result;
use tokio_postgres::Client;

/// Questions in a row, as whoever takes a pipeline over asks some.
const QUESTIONS: usize = 20;
/// For how long a slow answer counts.
const MEMORY: Duration = Duration::from_secs(15);
/// However slow it is, nobody waits for longer than this many times.
const SLOWEST: f64 = 6.0;

#[derive(Debug, Default)]
pub(super) struct Pace {
    /// The best of the whole storm.
    best: Option<Duration>,
    lately: VecDeque<(Instant, Duration)>,
}

impl Pace {
    pub(super) async fn measure(&mut self, client: &Client) -> Result<()> {
        let begun = Instant::now();
        for _ in 0..QUESTIONS {
            client.batch_execute("select 1").await?;
        }
        self.note(begun, begun.elapsed());
        Ok(())
    }

    fn note(&mut self, at: Instant, took: Duration) {
        self.best = Some(self.best.map_or(took, |best| best.min(took)));
        self.lately.push_back((at, took));
        while self.lately.front().is_some_and(|(then, _)| at.duration_since(*then) > MEMORY) {
            self.lately.pop_front();
        }
    }

    /// How many times longer than at best something takes: 1 at best.
    pub(super) fn slowness(&self) -> f64 {
        let Some(best) = self.best else { return 1.0 };
        let worst = self.lately.iter().map(|(_, took)| *took).max().unwrap_or(best);
        (worst.as_secs_f64() / best.as_secs_f64()).clamp(1.0, SLOWEST)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_machine_is_as_slow_as_its_slowest_answer_of_the_last_seconds_and_never_slower_than_the_limit() {
        let (mut pace, start) = (Pace::default(), Instant::now());
        assert_eq!(pace.slowness(), 1.0);
        pace.note(start, Duration::from_millis(10));
        pace.note(start + Duration::from_secs(1), Duration::from_millis(25));
        assert_eq!(pace.slowness(), 2.5);
        pace.note(start + Duration::from_secs(20), Duration::from_millis(20));
        assert_eq!(pace.slowness(), 2.0);
        pace.note(start + Duration::from_secs(21), Duration::from_secs(3));
        assert_eq!(pace.slowness(), SLOWEST);
    }
}
