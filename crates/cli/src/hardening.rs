//! What a service asks of the system before it serves: that no other process reads its memory, and descriptors enough.

use nix::sys::resource::{Resource, getrlimit, setrlimit};

/// More than any setting asks for; programs that look at every possible descriptor would take long beyond it.
const MOST_DESCRIPTORS: u64 = 1 << 20;

/// Processes of the same user, such as Python functions, read neither memory nor environment of this one: they hold every
/// password. It leaves no core dumps either, and debuggers need root.
pub(crate) fn harden() -> Descriptors {
    #[cfg(target_os = "linux")]
    if let Err(error) = nix::sys::prctl::set_dumpable(false) {
        tracing::warn!(%error, "other processes of this user may read the memory of this one");
    }
    if let Err(error) = raise_descriptors() {
        tracing::warn!(%error, "the limit of open files stays as it is");
    }
    Descriptors(getrlimit(Resource::RLIMIT_NOFILE).map_or(u64::MAX, |(soft, _)| soft))
}

/// How many files and connections this process may have open.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Descriptors(u64);

impl Descriptors {
    /// Connections of callers, where `asked` are wanted: a quarter stays for databases, workers and files of the same process.
    pub(crate) fn for_callers(self, asked: usize) -> usize {
        let room = usize::try_from(self.0 - self.0 / 4).unwrap_or(usize::MAX).max(1);
        if room < asked {
            tracing::warn!(
                descriptors = self.0,
                connections = room,
                "fewer connections than api.max_connections are taken at a time; raise the limit of open files (ulimit -n)"
            );
        }
        asked.min(room)
    }
}

/// The soft limit is one for programs that use `select`; this one does not.
fn raise_descriptors() -> nix::Result<()> {
    let (soft, hard) = getrlimit(Resource::RLIMIT_NOFILE)?;
    let wanted = hard.min(MOST_DESCRIPTORS);
    if soft < wanted { setrlimit(Resource::RLIMIT_NOFILE, wanted, hard) } else { Ok(()) }
}
