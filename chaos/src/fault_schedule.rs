//! How hard it storms: which faults, how many of them, and for how long.

use std::time::Duration;

use crate::trials::Trial;

#[derive(Debug, Clone)]
pub struct FaultSchedule {
    pub seed: u64,
    pub length: Duration,
    /// The storm continues, for up to four times its length, until there were this many: a busy machine allows few.
    pub min_probes: u64,
    pub runners: usize,
    pub lease: Duration,
    /// Each of these is spread evenly over the storm.
    pub kills: u32,
    pub zombies: u32,
    pub restarts: u32,
    /// Sessions of Vitrina that are ended at the server.
    pub terminations: u32,
    /// Times that a mart is locked for longer than a lease.
    pub blocks: u32,
    /// Times that a runner's heartbeats hang and its mart is locked until somebody has taken its place.
    pub isolations: u32,
    /// Tables of the source and marts that are truncated and filled again, rewritten, changed in their columns or partitions.
    pub rewrites: u32,
    /// Runners that are held in the middle of a merge or at the end of a run, and killed or stopped there.
    pub failpoints: u32,
    /// Times that the API is killed.
    pub api_kills: u32,
    /// There is a search server with an index.
    pub search: bool,
    /// Times that it is frozen or killed.
    pub search_harms: u32,
    /// Calls of the API.
    pub calls: u32,
    /// The share of these that disable a pipeline.
    pub disables: f64,
    /// Every runner has a login of its own at the marts, so that none can end the sessions of another: the fence is
    /// alone.
    pub own_logins: bool,
    pub writers: usize,
    /// How long a writer rests between two transactions, at most.
    pub breath: Duration,
    pub batch_size: u32,
    /// Played one after the other all the time, each beside the others.
    pub trials: Vec<Trial>,
    /// A hunt for a bug, which ends with the first violation of a rule that begins like one of these. No others count.
    pub sought: &'static [&'static str],
}

impl FaultSchedule {
    /// The faults of this many seconds at the pace of the whole storm.
    pub fn of(seed: u64, seconds: u32) -> Self {
        Self {
            seed,
            length: Duration::from_secs(seconds.into()),
            min_probes: 0,
            runners: 5,
            lease: Duration::from_secs(2),
            kills: seconds * 10 / 9,
            zombies: seconds * 2 / 9,
            restarts: seconds.div_ceil(45),
            terminations: seconds / 2,
            blocks: seconds / 15,
            isolations: seconds / 20,
            rewrites: seconds / 2,
            failpoints: seconds / 4,
            api_kills: seconds / 30,
            search: false,
            search_harms: seconds / 45,
            calls: seconds * 10,
            disables: 0.05,
            own_logins: false,
            writers: 6,
            breath: Duration::from_millis(100),
            batch_size: 4,
            trials: Trial::ALL.to_vec(),
            sought: &[],
        }
    }

    /// Nobody is harmed and nothing is rewritten: for bugs that a trial alone must find.
    pub fn only(&mut self, trials: &[Trial]) {
        (self.kills, self.zombies, self.restarts, self.terminations) = (0, 0, 0, 0);
        (self.blocks, self.isolations, self.rewrites, self.failpoints, self.api_kills) = (0, 0, 0, 0, 0);
        (self.calls, self.writers) = (0, 0);
        self.trials = trials.to_vec();
        self.search = false;
    }

    pub fn is_hunt(&self) -> bool {
        !self.sought.is_empty()
    }

    /// Whether a violation of this rule is what it is about.
    pub fn counts(&self, rule: &str) -> bool {
        !self.is_hunt() || self.sought.iter().any(|sought| rule.starts_with(sought))
    }

    pub fn is_over(&self, elapsed: Duration, probes: u64) -> bool {
        elapsed >= self.length && (probes >= self.min_probes || elapsed >= self.length * 4)
    }

    /// How often something comes that comes so many times.
    pub fn every(&self, times: u32) -> Option<Duration> {
        (times > 0).then(|| self.length / times)
    }

    /// Longer than a lease: its runner comes back as a zombie.
    pub fn long_stop(&self) -> (Duration, Duration) {
        (self.lease.mul_f64(1.1), self.lease.mul_f64(1.9))
    }
}
