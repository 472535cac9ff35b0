//! `vitrina roles`: the SQL for the owner of a database.

use std::collections::BTreeSet;

use anyhow::Result;
use serde_json::json;
use vitrina_guard::FromPublic;

use crate::config::Origin;
use crate::context::Context;
use crate::exit::Exit;
use crate::output::{self, shell_word};
use crate::roles::{Grants, LOGIN, Part, Passwords, READER, READER_CONNECTIONS};

const EXAMPLES: &str = "\
Examples:
  vitrina roles --schemas sales,stock > roles.sql   for the owner of the database
  vitrina roles --database shop --schemas 'Web Shop,sales' --marts reports
  vitrina roles --schemas sales --part logins       for somebody who may create roles";

#[derive(Debug, Clone, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    /// Refuse to work in another database than this one; without it the SQL is for whichever psql is connected to
    #[arg(long)]
    database: Option<String>,
    /// Schemas that pipelines may read, as they are named; by default those of allowed_schemas in the configuration
    #[arg(long, value_delimiter = ',', value_parser = readable_schema)]
    schemas: Vec<String>,
    /// Schema of the marts; it is created where it is missing
    #[arg(long, default_value = "analytics", value_parser = marts_schema)]
    marts: String,
    /// The login that keeps the meta-store and writes the marts
    #[arg(long, value_name = "ROLE", default_value = LOGIN)]
    login: String,
    /// The login that reads the sources
    #[arg(long, value_name = "ROLE", default_value = READER)]
    reader: String,
    /// How many sessions the reader may have at once, of all runners and APIs together
    #[arg(long, value_name = "N", default_value_t = READER_CONNECTIONS, value_parser = clap::value_parser!(u32).range(5..=10_000))]
    reader_connections: u32,
    /// Of all: the logins, for who may create roles; the grants, for the owner of the database; what a database that is
    /// only read needs
    #[arg(long, value_enum, default_value_t = Part::All)]
    part: Part,
    /// Take from PUBLIC, which is every login of the database, temporary tables and new tables in schema public
    #[arg(long)]
    revoke_public: bool,
    /// Also take functions that sleep, lock, notify or run SQL from PUBLIC, and give them to all other logins that are
    /// there; needs a superuser
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

pub(super) fn marts_schema(name: &str) -> Result<String, String> {
    match format!("{name}.mart").parse::<vitrina_core::TargetName>() {
        Ok(vitrina_core::TargetName::Postgres { .. })
            if !["etl", "vitrina", "vitrina_log"].contains(&name) =>
        {
            Ok(name.to_owned())
        }
        Ok(_) if name.contains(':') => Err("a schema of marts has small letters, digits and `_`".to_owned()),
        Ok(_) => Err(format!("schema {name} is Vitrina's own")),
        Err(_) => Err("a schema of marts has small letters, digits and `_`".to_owned()),
    }
}

pub(crate) fn run(args: &Args, context: &Context) -> Result<Exit> {
    let schemas = if args.schemas.is_empty() { configured(context)? } else { args.schemas.clone() };
    let Args { database, marts, login, reader, reader_connections, part, .. } = args.clone();
    if schemas.contains(&marts) && part != Part::Source {
        return Err(Exit::Usage.fault(format!(
            "{marts} is the schema of the marts, and among those that are read\nhint: choose another with --marts"
        )));
    }
    if login == reader {
        return Err(
            Exit::Usage.fault("the two logins are one\nhint: --login and --reader take different roles")
        );
    }
    let from_public = match (args.strict, args.revoke_public) {
        (true, _) => FromPublic::Functions,
        (false, true) => FromPublic::Tables,
        (false, false) => FromPublic::Nothing,
    };
    let settings = settings(&schemas, &marts);
    let grants = Grants { database, schemas, marts, login, reader, reader_connections, from_public, part };
    let sql = grants.render(&Passwords::of_psql());
    context.output.show(&json!({"sql": sql}), || sql.trim_end().to_owned());
    settings.iter().for_each(|line| output::say(line));
    Ok(Exit::Done)
}

/// Schemas that the configuration itself names, rather than those it would assume.
fn configured(context: &Context) -> Result<Vec<String>> {
    let config = context.config(Vec::new())?;
    let is_named = |name: &str| {
        let key = format!("connections.{name}.allowed_schemas");
        config.show().iter().any(|shown| shown.key == key && shown.origin != Origin::Default)
    };
    let named = config.settings.connections.iter().filter(|(name, _)| is_named(name));
    let named: BTreeSet<String> =
        named.flat_map(|(_, connection)| connection.allowed_schemas.clone()).collect();
    if named.is_empty() {
        return Err(Exit::Usage.fault("which schemas may pipelines read?\nhint: --schemas sales,stock"));
    }
    Ok(named.into_iter().collect())
}

/// What the configuration must say, where its defaults are others.
fn settings(schemas: &[String], marts: &str) -> Vec<String> {
    let assumed = ["content", "ugc"];
    let is_assumed = schemas.iter().all(|schema| assumed.contains(&schema.as_str()));
    let schemas = (!is_assumed).then(|| {
        format!(
            "set VITRINA_CONNECTIONS_<NAME>_ALLOWED_SCHEMAS={} for the connection that reads them",
            shell_word(&schemas.join(","))
        )
    });
    let marts = (marts != "analytics").then(|| {
        format!(
            "set VITRINA_ALLOWED_TARGETS={} for marts in this schema",
            shell_word(&format!("{marts}.*,es:*"))
        )
    });
    schemas.into_iter().chain(marts).collect()
}
