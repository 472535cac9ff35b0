//! Search servers for tests, and the proxies before them, tried on the real thing.
#![expect(clippy::unwrap_used, reason = "verbs of tests may fail as loudly as tests")]

mod faults;
mod gates;
mod nginx;
mod own;
mod servers;
