//! Times beside what the machine's neighbours took of it meanwhile: on a shared host, a virtual machine waits for its
//! cores at times, and whoever is timed then looks slow.

use std::time::{Duration, Instant};

use anyhow::{Context, Result};

/// What something took, and which share of the machine's time its host gave to others.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Took {
    pub(crate) seconds: f64,
    pub(crate) stolen: f64,
}

impl std::fmt::Display for Took {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:.2} s", self.seconds)?;
        if self.stolen >= 0.01 { write!(f, " ({:.0} % stolen)", self.stolen * 100.0) } else { Ok(()) }
    }
}

pub(crate) struct Clock {
    started: Instant,
    before: Ticks,
}

impl Clock {
    pub(crate) fn start() -> Result<Self> {
        Ok(Self { before: Ticks::read()?, started: Instant::now() })
    }

    pub(crate) fn stop(&self) -> Result<Took> {
        self.stop_with(self.started.elapsed())
    }

    /// With a time that somebody else has taken meanwhile.
    pub(crate) fn stop_with(&self, took: Duration) -> Result<Took> {
        let now = Ticks::read()?;
        let all = now.all.saturating_sub(self.before.all).max(1);
        let stolen = now.stolen.saturating_sub(self.before.stolen);
        Ok(Took { seconds: took.as_secs_f64(), stolen: stolen as f64 / all as f64 })
    }
}

/// The median of those that were disturbed least: half of them, or one more. They are chosen by what was stolen, never
/// by what they took.
pub(crate) fn steady(all: &[Took]) -> Took {
    let mut quietest = all.to_vec();
    quietest.sort_by(|a, b| a.stolen.total_cmp(&b.stolen));
    quietest.truncate(all.len() / 2 + 1);
    let stolen = quietest.last().map_or(0.0, |took| took.stolen);
    quietest.sort_by(|a, b| a.seconds.total_cmp(&b.seconds));
    Took { seconds: quietest[quietest.len() / 2].seconds, stolen }
}

/// Of all cores since the machine started.
struct Ticks {
    all: u64,
    stolen: u64,
}

impl Ticks {
    fn read() -> Result<Self> {
        let stat = std::fs::read_to_string("/proc/stat").context("/proc/stat")?;
        let cores = stat.lines().next().context("the line of all cores")?;
        // user, nice, system, idle, iowait, irq, softirq, steal; what follows is counted in these already.
        let ticks: Vec<u64> =
            cores.split_whitespace().skip(1).take(8).map(str::parse).collect::<Result<_, _>>()?;
        Ok(Self { all: ticks.iter().sum(), stolen: *ticks.get(7).unwrap_or(&0) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_median_is_of_the_rounds_that_were_disturbed_least() {
        let took = |seconds, stolen| Took { seconds, stolen };
        let all = [took(9.0, 0.5), took(1.0, 0.0), took(0.1, 0.6), took(3.0, 0.02), took(2.0, 0.01)];
        assert_eq!(steady(&all), took(2.0, 0.02));
        assert_eq!(steady(&[took(4.0, 0.3)]), took(4.0, 0.3));
    }
}
