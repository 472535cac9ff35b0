//! `vitrina validate PIPELINE`: its query, its mart, and how its changes will be followed.

use anyhow::Result;
use serde_json::json;
use vitrina_core::{Advice, Destination};

use crate::context::{Context, connect};
use crate::exit::Exit;
use crate::look::Look;

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Name or id
    pipeline: String,
}

pub(crate) async fn run(args: &Args, context: &Context) -> Result<Exit> {
    let settings = context.settings()?;
    let store = connect(&settings, "vitrina-validate", 1).await?;
    let looked = Look::at(&args.pipeline, &settings, &store).await;
    store.close().await;
    let advice = advise(looked?, &args.pipeline).await?;
    let document = json!({"pipeline": args.pipeline, "ok": true, "checks": advice});
    context.output.show(&document, || advice.iter().map(line).collect::<Vec<_>>().join("\n"));
    Ok(Exit::Done)
}

/// What cannot work is an error, told as a run would tell it.
async fn advise(mut looked: Look, pipeline: &str) -> Result<Vec<Advice>> {
    let mut advice = vec![Advice::fine(format!(
        "the query is one harmless SELECT and returns {} columns",
        looked.schema.fields().len()
    ))];
    let (kind, definition) = (looked.kind()?, looked.definition());
    let lacks = kind.lacks(&definition).await?;
    advice.push(match lacks.as_slice() {
        [] => Advice::fine(format!("{} takes them", looked.name)),
        _ => Advice::warning(
            format!("{} does not exist, or lacks columns", looked.name),
            format!("`vitrina mart {pipeline}` shows the statement"),
        ),
    });
    let key = kind.key(&definition).await?;
    looked.source.begin(&Destination { key, server: None }).await?;
    advice.extend(looked.source.advise().await?);
    Ok(advice)
}

fn line(advice: &Advice) -> String {
    let verdict = if advice.warning { "warn" } else { "ok  " };
    let hint = advice.hint.as_ref().map(|hint| format!("\n      hint: {hint}")).unwrap_or_default();
    format!("{verdict}  {}{hint}", advice.message)
}
