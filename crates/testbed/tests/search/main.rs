//! Search servers for tests, tried on the real thing.
#![expect(clippy::unwrap_used, reason = "verbs of tests may fail as loudly as tests")]

mod own;
mod servers;
