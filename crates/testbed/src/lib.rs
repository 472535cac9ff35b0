//! A fresh database for every test, on one of the servers that `with_postgres` starts, on the one named by
//! VITRINA_TEST_DATABASE_URL, or on a private one that ends with the test process; search servers likewise, and before
//! them a proxy that misbehaves as told, or nginx, and pgbouncer before a database.
//! Whatever goes wrong here is a panic: the reader is a test.

mod cuttable_proxy;
mod database;
mod http;
mod log_capture;
mod name;
mod nginx;
mod pooler;
mod postgres_proxy;
mod proxy;
mod python;
mod search;
mod server;
mod slot;
mod wait;

pub use cuttable_proxy::CuttableProxy;
pub use database::Database;
pub use http::http_client;
pub use log_capture::capture_logs;
pub use nginx::{Nginx, NginxPlan};
pub use pooler::{Pooler, PoolerPlan};
pub use postgres_proxy::PostgresProxy;
pub use proxy::{Fault, FaultProxy, Gate, Storm};
pub use python::python;
pub use search::{Distribution, Indexes, OwnSearchServer, SEARCH_DIRECTORY, SearchServer, ServerDirectory};
pub use server::{DATABASE_URL, SERVERS, throwaway_clusters};
pub use wait::eventually;
