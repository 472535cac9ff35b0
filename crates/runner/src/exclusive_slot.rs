//! An exclusive slot for a pipeline that may be what kills its runners: it is executed alone, and a runner that always has
//! other work would never take it. Where one has waited for long, this runner takes nothing new for a short while, until it
//! is idle; if it does not become idle, it works on for a longer while before it tries again.

use std::time::Duration;

use tokio::time::Instant;

/// In lengths of a lease: how long others may take it first, how long nothing new is taken, and how often.
const WAIT_BEFORE: u32 = 2;
const HELD_FREE: u32 = 2;
const EVERY: u32 = 12;

#[derive(Debug)]
pub(crate) struct ExclusiveSlot {
    lease: Duration,
    wait_before: Duration,
    free_until: Instant,
    next: Instant,
}

impl ExclusiveSlot {
    /// Runners wait for different times, so that not all of them hold a slot free at once.
    pub(crate) fn new(lease: Duration) -> Self {
        let now = Instant::now();
        let wait_before = lease * WAIT_BEFORE + lease.mul_f64(4.0 * fastrand::f64());
        Self { lease, wait_before, free_until: now, next: now }
    }

    /// A suspect has waited for so long.
    pub(crate) fn asked_for(&mut self, waited: Option<Duration>) {
        let now = Instant::now();
        if waited.is_some_and(|waited| waited > self.wait_before) && now >= self.next {
            tracing::info!("takes nothing new for a while: a pipeline waits that is to be executed alone");
            self.free_until = now + self.lease * HELD_FREE;
            self.next = now + self.lease * EVERY;
        }
    }

    pub(crate) fn is_held_free(&self) -> bool {
        Instant::now() < self.free_until
    }

    /// Another runner was faster.
    pub(crate) fn not_needed(&mut self) {
        self.free_until = Instant::now();
    }
}

#[cfg(test)]
mod tests {
    use tokio::time::advance;

    use super::*;

    const LEASE: Duration = Duration::from_secs(30);

    #[tokio::test(start_paused = true)]
    async fn the_slot_is_held_free_after_a_long_wait_for_a_while_and_not_again_at_once() {
        let mut exclusive_slot = ExclusiveSlot::new(LEASE);
        exclusive_slot.asked_for(None);
        exclusive_slot.asked_for(Some(LEASE));
        assert!(!exclusive_slot.is_held_free(), "others may take it first");
        exclusive_slot.asked_for(Some(LEASE * 7));
        assert!(exclusive_slot.is_held_free());
        advance(LEASE * 3).await;
        exclusive_slot.asked_for(Some(LEASE * 10));
        assert!(!exclusive_slot.is_held_free(), "there is other work");
        advance(LEASE * 10).await;
        exclusive_slot.asked_for(Some(LEASE * 20));
        assert!(exclusive_slot.is_held_free());
        exclusive_slot.not_needed();
        assert!(!exclusive_slot.is_held_free());
    }
}
