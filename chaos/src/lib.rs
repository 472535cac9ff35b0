//! The fault harness: real runner processes and a real API against a private Postgres, under kills, stops,
//! crashes and impatient people, while probes look in single snapshots for what must never be. Bugs that are put
//! into the binary by hand prove that the probes can see.

mod api;
mod archive;
pub mod bugs;
mod dice;
mod elsewhere;
mod failpoints;
mod faults;
pub mod fleet;
pub mod ground;
mod mute;
mod pipelines;
pub mod probes;
pub mod report;
mod rewrites;
mod storm;
mod trials;
mod weather;

pub use storm::{fill_marts, storm};
pub use trials::Trial;
pub use weather::Weather;
