//! Where Python is, what of it is registered, and what a function may take.

use std::path::PathBuf;
use std::time::Duration;

#[derive(Debug, Clone)]
pub struct PythonSettings {
    /// The interpreter of the environment that holds the SDK and whatever the functions need.
    pub interpreter: PathBuf,
    /// Modules whose functions are registered; nothing else is ever imported by name.
    pub modules: Vec<String>,
    /// Folders where modules are looked for before the environment's own.
    pub path: Vec<PathBuf>,
    /// Variables of the runner that functions may see beside those that every program needs.
    pub variables: Vec<String>,
    /// As whom functions run: another user than the runner's, which takes a runner that was started as root.
    pub user: Option<String>,
    /// Workers that wait for a run.
    pub warm: usize,
    /// Workers that one run may have: so many of its batches are worked on at a time.
    pub workers_a_run: usize,
    /// How long a function may take for one batch.
    pub deadline: Duration,
    /// What a worker and its children may hold in memory.
    pub memory_limit: u64,
    /// After so many batches a worker is replaced by a fresh one.
    pub batches_a_worker: u32,
}
