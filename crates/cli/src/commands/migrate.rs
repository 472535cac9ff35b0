//! `vitrina migrate`: the product's own schema, and no other.

use anyhow::Result;
use serde_json::json;
use vitrina_store::Store;

use crate::context::Context;
use crate::exit::Exit;

pub(crate) async fn run(context: &Context) -> Result<Exit> {
    let store = Store::connect(&context.database_url()?, "vitrina-migrate", 2).await?;
    let schema = store.migrate().await?;
    store.close().await;
    context.output.show(&json!({"applied": schema.applied, "known": schema.known}), || {
        format!("schema etl is up to date: {} of {} migrations are applied", schema.applied, schema.known)
    });
    Ok(Exit::Done)
}
