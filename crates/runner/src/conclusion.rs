//! Tells the meta-store how a run ended, by what happens next.

use std::time::{Duration, Instant};

use tokio::time::{sleep, timeout};
use tokio_util::sync::CancellationToken;
use vitrina_core::{Error, Remedy, Result, RunStatus};
use vitrina_store::{Claim, Error as StoreError, StepDone, Store};

use crate::events::{self, Figures};
use crate::executor::End;
use crate::manager::UNANSWERED;
use crate::{RunLog, counters};

const FIRST_RELEASE: Duration = Duration::from_secs(1);
/// Servers lock accounts that are refused too often.
const FIRST_LOGIN: Duration = Duration::from_secs(60);
const LONGEST_RELEASE: Duration = Duration::from_secs(300);
/// How soon a meta-store that was away is asked again.
const TELL_AGAIN: Duration = Duration::from_millis(300);

/// What the meta-store says to the end of a run; `None` where the run is another runner's by now.
type Told = vitrina_store::Result<Option<StepDone>>;

pub(crate) struct Conclusion<'a> {
    pub(crate) store: &'a Store,
    pub(crate) claim: &'a Claim,
    pub(crate) shutdown: &'a CancellationToken,
    pub(crate) run_log: Option<&'a RunLog>,
    pub(crate) figures: Figures,
}

impl Conclusion<'_> {
    pub(crate) async fn reach(&self, end: &Result<End>) {
        if let Err(error) = end {
            // Once, however often the meta-store must be told.
            events::run_broke_off(error, &self.figures);
        }
        if let Some(run_log) = self.run_log {
            // Whoever hears of the end finds there what led to it.
            run_log.flush().await;
        }
        match self.tell_in_time(end).await {
            Ok(Some(done)) => {
                let result = done.effect.close_run.map(RunStatus::as_str);
                counters::run_ended(self.claim, result, self.figures.started.elapsed());
                events::run_ended(&done, end.as_ref().err(), &self.figures);
            }
            Ok(None) | Err(StoreError::LeaseLost) => events::run_left(&self.figures),
            Err(error) => {
                tracing::error!(%error, "the end of the run could not be recorded; its lease will expire");
            }
        }
    }

    /// A meta-store that is away for a moment must not cost the lease: its expiry would count as a stall.
    async fn tell_in_time(&self, end: &Result<End>) -> Told {
        let deadline = Instant::now() + self.claim.lease_length;
        loop {
            let told = timeout(UNANSWERED, self.tell(end)).await;
            match told.unwrap_or(Err(StoreError::Unanswered)) {
                Err(error) if error.is_connection() || error.is_busy() => {
                    if Instant::now() > deadline || self.shutdown.is_cancelled() {
                        return Err(error);
                    }
                    tracing::debug!(%error, "the end of the run cannot be recorded yet");
                    sleep(TELL_AGAIN).await;
                }
                told => return told,
            }
        }
    }

    async fn tell(&self, end: &Result<End>) -> Told {
        let lease = &self.claim.lease;
        match end {
            Ok(End::Data) => self.store.finish(lease).await.map(Some),
            Ok(End::Unchanged { as_of }) => self.store.finish_unchanged(lease, *as_of).await.map(Some),
            Ok(End::Interrupted) => self.store.interrupt(lease).await.map(Some),
            Ok(End::Shutdown) => {
                let reason = "the runner was stopped";
                self.store.release(lease, "runner.stopped", reason, Duration::ZERO).await.map(Some)
            }
            Err(error) => self.tell_error(error).await,
        }
    }

    async fn tell_error(&self, error: &Error) -> Told {
        let (lease, text) = (&self.claim.lease, error.with_values());
        match error.remedy {
            Remedy::StandDown => Ok(None),
            Remedy::Release => self.release(error, &text, FIRST_RELEASE).await,
            Remedy::AwaitLogin if self.store.has_worked(lease.pipeline).await? => {
                self.release(error, &text, FIRST_LOGIN).await
            }
            Remedy::AwaitLogin | Remedy::Retry | Remedy::FixConfiguration | Remedy::ReportBug => {
                self.store.fail(lease, error.code, &text, error.drops_pass()).await.map(Some)
            }
        }
    }

    /// Every time in a row it waits twice as long.
    async fn release(&self, error: &Error, text: &str, first: Duration) -> Told {
        let lease = &self.claim.lease;
        let releases = self.store.releases(lease.pipeline).await?;
        let wait = jittered(LONGEST_RELEASE.min(first * (1 << releases.min(9))));
        self.store.release(lease, error.code, text, wait).await.map(Some)
    }
}

/// Up to a quarter longer, so that those who failed together do not come back together.
pub(crate) fn jittered(wait: Duration) -> Duration {
    wait.mul_f64(1.0 + fastrand::f64() / 4.0)
}
