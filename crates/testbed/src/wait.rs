//! Waiting for what gives no signal.

use std::time::{Duration, Instant};

/// Longer than anything takes on a busy machine: only a test that fails waits for so long.
pub(crate) const PATIENCE: Duration = Duration::from_secs(120);

const PAUSE: Duration = Duration::from_millis(20);

/// Asks until there is an answer; panics when there is none for minutes.
pub async fn eventually<T>(what: &str, mut ask: impl AsyncFnMut() -> Option<T>) -> T {
    let begun = Instant::now();
    loop {
        if let Some(answer) = ask().await {
            return answer;
        }
        assert!(begun.elapsed() < PATIENCE, "{what}: not within {PATIENCE:?}");
        tokio::time::sleep(PAUSE).await;
    }
}
