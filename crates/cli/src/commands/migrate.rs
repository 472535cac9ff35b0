//! `vitrina migrate`: the product's own schema, and no other.

use anyhow::Result;
use serde_json::json;
use vitrina_core::TargetPart;
use vitrina_store::{Error, SchemaState, Store, Writers};

use crate::context::Context;
use crate::exit::{self, Exit};
use crate::output;

pub(crate) const EXAMPLES: &str = "\
Examples:
  vitrina migrate   as the owner of the database; repeatable";

pub(crate) async fn run(context: &Context) -> Result<Exit> {
    let store = Store::connect(&context.database_url()?, "vitrina-migrate", 2).await?;
    let schema = bring_up_to_date(&store).await?;
    let contested = contested(&store).await.map_err(refused)?;
    store.close().await;
    context.output.show(&json!({"applied": schema.applied, "known": schema.known}), || {
        format!("schema etl is up to date: {} of {} migrations are applied", schema.applied, schema.known)
    });
    contested.iter().for_each(|message| output::say(message));
    Ok(Exit::Done)
}

/// A line for each target with a writer too many. The first of its pipelines that runs becomes its owner, and the others
/// are refused.
pub(super) async fn contested(store: &Store) -> Result<Vec<String>, Error> {
    let found = store.contested_targets().await?;
    let line = |(target, writers): (&TargetPart, &Writers)| {
        let mut names: Vec<&str> = writers.names.values().map(String::as_str).collect();
        names.sort_unstable();
        format!(
            "{target} is written by {}: whichever runs first owns it, and the runs of the others are refused\nhint: keep \
             one of them, with a full_schedule for full loads beside increments, and delete or retarget the others; or give the target `shared`",
            names.join(" and ")
        )
    };
    Ok(found.iter().map(line).collect())
}

/// Only when there is need: the login of a prepared database may not be allowed to.
pub(super) async fn bring_up_to_date(store: &Store) -> Result<SchemaState> {
    match store.check_schema().await {
        Ok(schema) => Ok(schema),
        Err(_) => store.migrate().await.map_err(refused),
    }
}

fn refused(error: Error) -> anyhow::Error {
    match error {
        Error::Database(cause) if exit::lacks_rights(&cause) => Exit::Refused.fault(format!(
            "the meta-store cannot be migrated: {}\nhint: run `vitrina migrate` as the owner of the database, \
             then `vitrina roles`",
            exit::told(&cause)
        )),
        error => error.into(),
    }
}
