//! The control plane: REST over the meta-store. It requests, and never executes (R-ARC-1): runners
//! are met in the database only.
//!
//! A call goes one way: `envelope` → `access` → `routes` (HTTP) → `services` (rules) → store (SQL).
//! Whatever goes wrong becomes an `error::Error`, and that a problem document, in one place each.

pub mod documents;

mod access;
mod app;
mod coalescing;
mod connections;
mod envelope;
mod error;
mod events;
mod extract;
mod health_cache;
mod limits;
mod listeners;
mod logins;
mod lookups;
mod measure;
mod problem;
mod query;
mod routes;
mod server;
mod services;
mod settings;
mod sight;
mod tls;
mod wakeups;

pub use routes::schema::of_files as config_schema;
pub use server::{Server, StartError, check_admin_token};
pub use settings::{ApiSettings, SourceConnection};
pub use tls::{TlsError, TlsFiles};
