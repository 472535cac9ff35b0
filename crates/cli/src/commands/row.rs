//! `vitrina row PIPELINE KEY`: where did this row go?

use anyhow::Result;
use serde_json::json;
use vitrina_api::documents::{Row, RowColumn, RowState, WriteUnknown};

use crate::context::Context;
use crate::exit::Exit;
use crate::output::{self, fitting, one_line, shell_word, time};

use super::backfill::key;
use super::reconcile::text::key_text;

const EXAMPLES: &str = "\
Examples:
  vitrina row film_dim 7                   at the source, in the target, rejected or not, and written when
  vitrina row film_genre '[\"7\", \"drama\"]'  a key of several columns";

#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    /// Name or id
    pipeline: String,
    /// The value of the target's key column, or a JSON list of the values where the key has several columns
    #[arg(value_name = "KEY", allow_negative_numbers = true)]
    key: String,
}

pub(crate) async fn run(args: &Args, context: &Context) -> Result<Exit> {
    let asked = key(&args.key, "")?;
    // A text that is no list is sent as it was typed.
    let asked = if asked.is_array() { asked.to_string() } else { args.key.clone() };
    let row = context.client()?.row(&args.pipeline, &asked).await?;
    context.output.show(&row.document, || text(&row.known));
    if let Some(problem) = &row.known.problem {
        output::say(&format!("nobody could look at source and target: {}", problem.detail));
        return Ok(Exit::Refused);
    }
    if row
        .known
        .look
        .as_ref()
        .is_some_and(|look| matches!(look.state, RowState::Missing | RowState::Different | RowState::Extra))
    {
        let again = shell_word(&key_text(&json!(row.known.key)));
        output::say(&format!("`vitrina backfill {} {again}` reads it again", shell_word(&args.pipeline)));
    }
    Ok(Exit::Done)
}

fn text(row: &Row) -> String {
    let facts = [where_it_is(row), reject(row), last_write(row), backfill(row), reconcile(row)];
    let facts = facts.into_iter().flatten().collect::<Vec<_>>().join("\n");
    match &row.look {
        Some(look) if look.state != RowState::Absent => format!("{facts}\n\n{}", sides(&look.columns)),
        _ => facts,
    }
}

fn where_it_is(row: &Row) -> Option<String> {
    let look = row.look.as_ref()?;
    let said = match look.state {
        RowState::Equal => "in source and target, and equal",
        RowState::Different if !look.fits => {
            "in source and target; the target's types cannot hold what the source has"
        }
        RowState::Different => "in source and target, and different",
        RowState::Missing if !look.fits => "in the source only; the target's types cannot hold it",
        RowState::Missing => "in the source only",
        RowState::Extra => "in the target only",
        RowState::Absent => "neither in the source nor in the target",
    };
    let on_its_way = match look.in_flight {
        Some(true) => "; the next run reads it",
        Some(false) => "; the next run does not read it by itself",
        None => "",
    };
    Some(format!("{} is {said}{on_its_way}", key_text(&json!(row.key))))
}

fn reject(row: &Row) -> Option<String> {
    let reject = row.reject.as_ref()?;
    let (code, message) = (&reject.code, one_line(&reject.message));
    Some(format!("rejected by run {} at {}: {code} {message}", reject.run_id, time(reject.rejected_at)))
}

fn last_write(row: &Row) -> Option<String> {
    row.look.as_ref()?;
    let write = &row.last_write;
    let at = match (write.at, write.since) {
        (Some(at), _) => format!(" at {}", time(at)),
        (None, Some(since)) => format!(" after {}", time(since)),
        (None, None) => String::new(),
    };
    let Some(run) = write.run_id else {
        let why = match write.unknown? {
            WriteUnknown::NotThere => return None,
            WriteUnknown::NoMark => "the target keeps no mark of it",
            WriteUnknown::OtherClock => "the target goes by another clock",
            WriteUnknown::SeveralWriters => "several pipelines were writing then",
            WriteUnknown::NotSeen | WriteUnknown::NoRun => "no run that is still kept was writing then",
        };
        return Some(format!("last written{at}; by which run is not known: {why}"));
    };
    let batch = write.batch_id.map(|batch| format!(", batch {batch}")).unwrap_or_default();
    let pipeline = write.pipeline.as_deref().unwrap_or_default();
    Some(format!("last written{at} by {pipeline}, run {run}{batch}"))
}

fn backfill(row: &Row) -> Option<String> {
    let backfill = row.backfill.as_ref()?;
    let (run, status) = (backfill.run_id, &backfill.status);
    Some(format!("read again by its key by run {run}, {status} at {}", time(backfill.finished_at)))
}

fn reconcile(row: &Row) -> Option<String> {
    let Some(last) = &row.reconcile else { return Some("the target was never compared".to_owned()) };
    let before = if last.outdated { ", before the configuration was changed" } else { "" };
    let at = format!("{}{before}", time(last.finished_at));
    Some(match (&last.difference, last.listed) {
        (Some(difference), _) => format!("{} in the reconcile of {at} ({})", difference.kind, last.id),
        (None, Some(_)) => format!("not among the rows that differ in the reconcile of {at}"),
        (None, None) => format!("the reconcile of {at} has not kept all rows that differ"),
    })
}

fn sides(columns: &[RowColumn]) -> String {
    let cell = |text: &Option<String>| text.as_deref().map_or_else(|| "null".to_owned(), one_line);
    let row = |column: &RowColumn| {
        let differs = if column.differs { "differs" } else { "" };
        [one_line(&column.name), cell(&column.source), cell(&column.target), differs.to_owned()]
    };
    fitting(&output::table(["column", "source", "target", ""], columns.iter().map(row)))
}
