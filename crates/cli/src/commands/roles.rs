//! `vitrina roles`: the SQL for a database administrator.

use serde_json::json;

use crate::context::Context;
use crate::exit::Exit;
use crate::roles::{Grants, Passwords};

const EXAMPLES: &str = "\
Examples:
  vitrina roles > roles.sql   for an administrator, who runs it in psql
  vitrina roles --database shop --schemas sales,stock --marts analytics";

#[derive(Debug, Clone, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    /// Database of the meta-store, the marts and the sources
    #[arg(long, default_value = "cinema")]
    database: String,
    /// Schemas that pipelines may read
    #[arg(long, value_delimiter = ',', value_parser = readable_schema, default_value = "content,ugc")]
    schemas: Vec<String>,
    /// Schema of the marts
    #[arg(long, default_value = "analytics")]
    marts: String,
    /// Take functions that sleep, lock, notify or run SQL from PUBLIC, and give them to all other logins that are there
    #[arg(long)]
    strict: bool,
}

/// Pipelines never read the product's own schema and that of accounts, so their login must not either.
fn readable_schema(name: &str) -> Result<String, &'static str> {
    match name.trim() {
        "" => Err("a schema has a name"),
        "etl" | "auth" => Err("pipelines may not read the schemas etl and auth"),
        name => Ok(name.to_owned()),
    }
}

pub(crate) fn run(args: &Args, context: &Context) -> Exit {
    let Args { database, schemas, marts, strict } = args.clone();
    let grants = Grants { database, schemas, marts, strict };
    let sql = grants.render(&Passwords::of_psql());
    context.output.show(&json!({"sql": sql}), || sql.trim_end().to_owned());
    Exit::Done
}
