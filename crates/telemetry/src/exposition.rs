//! Metrics in the text form that Prometheus scrapes.
//!
//! A process that is control plane and data plane at once has one exposition for each: what a runner shows of itself
//! and what the API shows of all runners must not meet on one page.

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use metrics_exporter_prometheus::{Matcher, PrometheusBuilder, PrometheusHandle, PrometheusRecorder};

pub const CONTENT_TYPE: &str = "text/plain; version=0.0.4; charset=utf-8";

/// From a call of the API to a load of hours. 0.3 is what a batch of a simple mart may take (R-OPS-5).
const SECONDS: [f64; 19] = [
    0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.2, 0.3, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0,
    1800.0, 7200.0,
];
/// Samples wait in memory until they are asked for, or until this has passed.
const UPKEEP: Duration = Duration::from_secs(5);

#[derive(Clone)]
pub struct Exposition {
    recorder: Arc<PrometheusRecorder>,
    handle: PrometheusHandle,
}

impl Default for Exposition {
    fn default() -> Self {
        Self::new()
    }
}

impl Exposition {
    pub fn new() -> Self {
        let seconds = Matcher::Suffix("_duration_seconds".to_owned());
        let builder = PrometheusBuilder::new()
            .set_buckets_for_metric(seconds, &SECONDS)
            .expect("the list of buckets is not empty");
        let recorder = builder.build_recorder();
        Self { handle: recorder.handle(), recorder: Arc::new(recorder) }
    }

    /// Where everything goes that is counted outside of `record`. Until this is called, that is nowhere and costs
    /// nothing.
    pub fn of_process() -> &'static Self {
        static OF_PROCESS: OnceLock<Exposition> = OnceLock::new();
        OF_PROCESS.get_or_init(|| {
            let exposition = Self::new();
            // An error would be another recorder that was there first: then that one counts.
            metrics::set_global_recorder(Arc::clone(&exposition.recorder)).ok();
            exposition
        })
    }

    /// What `count` counts is counted here and nowhere else.
    pub fn record<T>(&self, count: impl FnOnce() -> T) -> T {
        metrics::with_local_recorder(self.recorder.as_ref(), count)
    }

    pub fn render(&self) -> String {
        self.handle.render()
    }

    /// Keeps memory bounded while nobody asks.
    pub async fn keep_up(&self) {
        loop {
            tokio::time::sleep(UPKEEP).await;
            self.handle.run_upkeep();
        }
    }
}

impl std::fmt::Debug for Exposition {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Exposition").finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_two_parts_of_a_process_count_does_not_meet() {
        let (api, runner) = (Exposition::new(), Exposition::new());
        api.record(|| metrics::counter!("calls_total", "route" => "/a \"b\"\n").increment(2));
        runner.record(|| metrics::histogram!("run_duration_seconds").record(0.2));
        assert!(api.render().contains(r#"calls_total{route="/a \"b\"\n"} 2"#), "{}", api.render());
        assert!(!api.render().contains("run_duration_seconds"));
        let page = runner.render();
        assert!(page.contains(r#"run_duration_seconds_bucket{le="0.2"} 1"#), "{page}");
        assert!(!page.contains("calls_total"));
    }
}
