//! A private Postgres that Vitrina starts itself, from whatever installation it finds, in one directory
//! that holds everything: data, settings, password and log. For the demo and for tests.
//! As whom a server runs and how it ends with its process holds for other private servers of tests as well.
//! Everything here blocks for as long as Postgres takes: call it from `spawn_blocking` in async code.

mod account;
mod cluster;
mod error;
mod home;
mod installation;
mod launch;
mod programs;
mod watchdog;

pub use account::Account;
pub use cluster::{Cluster, Options, Primary, remove};
pub use error::{Error, Result};
pub use installation::{Installation, OLDEST_MAJOR};
pub use watchdog::Watchdog;
