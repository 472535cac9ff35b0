//! The fault harness: real runner processes and a real API against a private Postgres, under kills, stops,
//! crashes and impatient people, while probes look in single snapshots for what must never be. Bugs that are put
//! into the binary by hand prove that the probes can see.

mod api;
pub mod bugs;
mod failpoints;
mod fault_schedule;
mod faults;
pub mod fixture;
pub mod fleet;
mod isolation;
mod pipelines;
pub mod probes;
mod remote;
pub mod report;
mod restored_source;
mod rewrites;
mod rng;
mod storm;
mod trials;

pub use fault_schedule::FaultSchedule;
pub use storm::{fill_marts, storm};
pub use trials::Trial;
