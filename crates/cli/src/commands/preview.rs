//! `vitrina preview PIPELINE|FILE`: sample rows of a query, before it is saved or run.

use std::path::{Path, PathBuf};

use anyhow::Result;
use vitrina_api::documents::Preview;

use crate::context::Context;
use crate::exit::Exit;
use crate::files::Files;
use crate::output::{self, one_line};

const EXAMPLES: &str = "\
Examples:
  vitrina preview film_dim               the first rows of its query
  vitrina preview films.yaml --limit 3   of a file that is not applied yet";

#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    /// Name or id of a pipeline, or a YAML file with one
    #[arg(value_name = "PIPELINE|FILE")]
    what: String,
    /// At most so many rows
    #[arg(long, default_value_t = 10, value_parser = clap::value_parser!(u32).range(1..=100))]
    limit: u32,
}

pub(crate) async fn run(args: &Args, context: &Context) -> Result<Exit> {
    let client = context.client()?;
    let preview = match Path::new(&args.what).is_file() {
        true => {
            let files = Files::read(&[PathBuf::from(&args.what)])?;
            let pipeline = files.only_pipeline()?;
            client.preview_unsaved(pipeline, args.limit).await?
        }
        false => client.preview(&args.what, args.limit).await?,
    };
    context.output.show(&preview.document, || output::fitting(&table(&preview.known)));
    if preview.known.has_more {
        output::say("there are more rows");
    }
    Ok(Exit::Done)
}

fn table(preview: &Preview) -> String {
    let header = preview.columns.iter().map(|column| column.name.clone()).collect();
    let cell = |cell: &Option<String>| cell.as_deref().map_or_else(|| "NULL".to_owned(), one_line);
    output::wide_table(header, preview.rows.iter().map(|row| row.iter().map(cell).collect()))
}
