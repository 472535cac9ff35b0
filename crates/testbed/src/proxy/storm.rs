//! Random faults, the same ones for the same seed and the same order of requests.

use std::time::Duration;

use fastrand::Rng;
use serde_json::json;

use super::forward::Call;
use super::{Fault, Gate};

/// All of them are such that a client which tries again gets its work done in the end.
#[derive(Debug, Clone)]
pub struct Storm {
    seed: u64,
    part: String,
    share: f64,
    busy: f64,
}

impl Storm {
    /// Troubles half of all requests.
    pub fn new(seed: u64) -> Self {
        Self { seed, part: String::new(), share: 0.5, busy: 0.0 }
    }

    /// Only requests whose method and path hold `part`.
    pub fn on(self, part: &str) -> Self {
        Self { part: part.to_owned(), ..self }
    }

    /// How many of the operations of every other bulk are refused by a server that is too busy, from 0 to 1.
    pub fn busy(self, busy: f64) -> Self {
        Self { busy, ..self }
    }

    /// How many of these are troubled, from 0 to 1.
    pub fn share(self, share: f64) -> Self {
        Self { share, ..self }
    }
}

/// A storm that goes on.
#[derive(Debug)]
pub(super) struct Weather {
    storm: Storm,
    random: Rng,
    /// Copies that wait, and for how many further requests.
    waiting: Vec<(Gate, usize)>,
}

impl Weather {
    pub(super) fn of(storm: Storm) -> Self {
        Self { random: Rng::with_seed(storm.seed), storm, waiting: Vec::new() }
    }

    pub(super) fn fault_for(&mut self, call: &Call) -> Fault {
        if !call.line().contains(&self.storm.part) {
            return Fault::Pass;
        }
        if self.random.f64() >= self.storm.share {
            return self.drizzle(call);
        }
        match self.random.u8(0..8) {
            0 => Fault::DropRequest,
            1 => Fault::DropReply,
            2 => Fault::Delay(Duration::from_millis(self.random.u64(1..50))),
            3 => Fault::Duplicate,
            4 => self.duplicate_later(),
            5 => self.refuse(),
            _ if call.is_bulk() => Fault::RejectItems(self.random.f64()),
            _ => Fault::Pass,
        }
    }

    /// Where nothing worse happens.
    fn drizzle(&self, call: &Call) -> Fault {
        let busy = call.is_bulk() && self.storm.busy > 0.0;
        if busy { Fault::RejectItems(self.storm.busy) } else { Fault::Pass }
    }

    /// Another request has passed: copies that have waited long enough follow.
    pub(super) fn blow(&mut self) {
        self.waiting.retain_mut(|(gate, left)| {
            *left -= 1;
            if *left == 0 {
                gate.open();
            }
            *left > 0
        });
    }

    fn duplicate_later(&mut self) -> Fault {
        let gate = Gate::new();
        self.waiting.push((gate.clone(), self.random.usize(2..6)));
        Fault::DuplicateLater(gate)
    }

    fn refuse(&mut self) -> Fault {
        let status = *self.random.choice(&[429, 502, 503]).expect("there are some");
        Fault::Answer(status, json!({"error": {"type": "storm", "reason": "bad weather"}, "status": status}))
    }
}

impl Drop for Weather {
    /// What waits passes at the end.
    fn drop(&mut self) {
        for (gate, _) in &self.waiting {
            gate.open();
        }
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use hyper::header::HeaderMap;

    use super::*;

    fn faults(storm: Storm, path: &str) -> Vec<String> {
        let (method, headers, body) = (hyper::Method::POST, HeaderMap::new(), Bytes::new());
        let call = Call { method, path: path.to_owned(), headers, body };
        let mut weather = Weather::of(storm);
        (0..200).map(|_| format!("{:?}", weather.fault_for(&call))).collect()
    }

    #[test]
    fn the_same_seed_brings_the_same_storm() {
        let storm = faults(Storm::new(7), "/_bulk");
        assert_eq!(storm, faults(Storm::new(7), "/_bulk"));
        assert_ne!(storm, faults(Storm::new(8), "/_bulk"));
        for kind in
            ["DropRequest", "DropReply", "Delay", "Duplicate", "DuplicateLater", "Answer", "RejectItems"]
        {
            assert!(storm.iter().any(|fault| fault.starts_with(kind)), "{kind}");
        }
    }

    #[test]
    fn a_storm_keeps_to_its_share_and_its_part() {
        assert!(faults(Storm::new(7).on("_bulk"), "/films").iter().all(|fault| fault == "Pass"));
        assert!(faults(Storm::new(7).share(0.0), "/_bulk").iter().all(|fault| fault == "Pass"));
        assert!(faults(Storm::new(7).share(1.0), "/_bulk").iter().all(|fault| fault != "Pass"));
    }
}
