//! Pipelines into search indexes, on real servers: each test that can be is played on Elasticsearch and on OpenSearch.
#![allow(clippy::unwrap_used)] // the verbs of a test may panic as the test itself may

#[path = "../pipelines/compared.rs"]
#[allow(dead_code)] // the verbs of marts
mod compared;
#[path = "../pipelines/stage.rs"]
#[allow(dead_code)] // the verbs of marts
mod stage;

#[path = "../pipelines/functions.rs"]
#[allow(dead_code)] // the verbs of marts
mod functions;

mod aliases;
mod copies;
mod documents;
mod fences;
mod heirs;
mod inspections;
mod isolated;
mod keys;
mod late;
mod lines;
mod loads;
mod newer;
mod ownership;
mod python;
mod reconciles;
mod refusals;
mod refused;
mod rollbacks;
mod routings;
mod rows;
mod shared;
mod shelf;
mod storms;
mod strangers;
mod stress;
mod templates;
mod tested;
mod updates;
mod zombie;
