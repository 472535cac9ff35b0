//! What a thread logs.

use tracing::subscriber::{DefaultGuard, set_default, set_global_default};

/// Gives a subscriber all that this thread logs while the guard lives.
///
/// As long as a process has one subscriber, `tracing` asks only the thread that comes by a line first whether anybody
/// wants it, and keeps the answer for all threads. So there is another one, for all threads, that wants everything.
pub fn capture_logs(subscriber: impl tracing::Subscriber + Send + Sync + 'static) -> DefaultGuard {
    // Err only says that it is there already.
    let _ = set_global_default(tracing_subscriber::registry());
    set_default(subscriber)
}
