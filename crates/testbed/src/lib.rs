//! A fresh database for every test, on one of the servers that `with_postgres` starts, on the one named by
//! VITRINA_TEST_DATABASE_URL, or on a private one that ends with the test process; search servers likewise, and before
//! them a proxy that misbehaves as told, or nginx, and pgbouncer before a database.
//! Whatever goes wrong here is a panic: the reader is a test.

mod database;
mod ear;
mod front;
mod http;
mod line;
mod name;
mod pooler;
mod postgres_proxy;
mod proxy;
mod python;
mod search;
mod server;
mod slot;
mod wait;

pub use database::Database;
pub use ear::listen;
pub use front::{Front, FrontPlan};
pub use http::http_client;
pub use line::Line;
pub use pooler::{Pooler, PoolerPlan};
pub use postgres_proxy::PostgresProxy;
pub use proxy::{Fault, FaultProxy, Gate, Storm};
pub use python::python;
pub use search::{Distribution, Indexes, OwnSearchServer, SEARCH_DIRECTORY, SearchServer, ServerDirectory};
pub use server::{DATABASE_URL, SERVERS, throwaway_clusters};
pub use wait::eventually;
