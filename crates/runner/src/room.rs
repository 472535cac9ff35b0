//! Room for a pipeline that may be what kills its runners: it is executed alone, and a runner that always has other
//! work would never take it. Where one has waited for long, this runner takes nothing new for a short while, until it
//! is idle; if that does not come to pass, it works on for a longer while before it tries again.

use std::time::Duration;

use tokio::time::Instant;

/// In lengths of a lease: how long others may take it first, how long nothing new is taken, and how often.
const PATIENCE: u32 = 2;
const HELD_FREE: u32 = 2;
const EVERY: u32 = 12;

#[derive(Debug)]
pub(crate) struct Room {
    lease: Duration,
    patience: Duration,
    free_until: Instant,
    next: Instant,
}

impl Room {
    /// Runners are patient to different degrees, so that not all of them make room at once.
    pub(crate) fn new(lease: Duration) -> Self {
        let now = Instant::now();
        let patience = lease * PATIENCE + lease.mul_f64(4.0 * fastrand::f64());
        Self { lease, patience, free_until: now, next: now }
    }

    /// A suspect has waited for so long.
    pub(crate) fn asked_for(&mut self, waited: Option<Duration>) {
        let now = Instant::now();
        if waited.is_some_and(|waited| waited > self.patience) && now >= self.next {
            tracing::info!("takes nothing new for a while: a pipeline waits that is to be executed alone");
            self.free_until = now + self.lease * HELD_FREE;
            self.next = now + self.lease * EVERY;
        }
    }

    pub(crate) fn is_held_free(&self) -> bool {
        Instant::now() < self.free_until
    }

    /// It was made for nobody: another runner was faster.
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
    async fn room_is_made_for_who_has_waited_long_for_a_while_and_not_again_at_once() {
        let mut room = Room::new(LEASE);
        room.asked_for(None);
        room.asked_for(Some(LEASE));
        assert!(!room.is_held_free(), "others may take it first");
        room.asked_for(Some(LEASE * 7));
        assert!(room.is_held_free());
        advance(LEASE * 3).await;
        room.asked_for(Some(LEASE * 10));
        assert!(!room.is_held_free(), "there is other work");
        advance(LEASE * 10).await;
        room.asked_for(Some(LEASE * 20));
        assert!(room.is_held_free());
        room.not_needed();
        assert!(!room.is_held_free());
    }
}
