//! `vitrina backfill PIPELINE KEY…`: reads rows again by their keys, or by a range of the cursor.

use std::io::Read;
use std::path::{Path, PathBuf};

use anyhow::Result;
use serde_json::Value;
use vitrina_api::documents::{Key, RunOrder};
use vitrina_core::OnActive;

use crate::context::Context;
use crate::exit::Exit;

use super::watch;

const EXAMPLES: &str = "\
Examples:
  vitrina backfill film_dim 7a1f… 8b2e… --watch                 these rows, by their key
  vitrina backfill order_lines '[\"17\", \"2\"]'                    where the key has several columns
  vitrina backfill film_dim --keys-file keys.txt                a key a line; - is stdin
  vitrina backfill film_dim --from 2024-05-01 --to 2024-06-01   what changed in May";

#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    /// Name or id
    pipeline: String,
    /// The value of the target's key column, or a JSON list of the values where the key has several columns
    #[arg(value_name = "KEY", required_unless_present_any = ["keys_file", "from", "to"], allow_negative_numbers = true)]
    keys: Vec<String>,
    /// Read the keys from a file, one a line; - is stdin
    #[arg(long, value_name = "FILE", conflicts_with = "keys")]
    keys_file: Option<PathBuf>,
    /// Read all rows again whose incremental_key is this or greater
    #[arg(long, value_name = "VALUE", conflicts_with_all = ["keys", "keys_file"], allow_negative_numbers = true)]
    from: Option<String>,
    /// Read all rows again whose incremental_key is less than this
    #[arg(long, value_name = "VALUE", conflicts_with_all = ["keys", "keys_file"], allow_negative_numbers = true)]
    to: Option<String>,
    #[command(flatten)]
    watch: watch::Watch,
}

pub(crate) async fn run(args: &Args, context: &Context) -> Result<Exit> {
    let keys = match &args.keys_file {
        Some(file) => Some(from_file(file)?),
        None if args.keys.is_empty() => None,
        None => Some(args.keys.iter().map(|text| whole_key(text, "")).collect::<Result<_>>()?),
    };
    let (from, to) = (args.from.clone(), args.to.clone());
    let client = context.client()?;
    // A backfill is a request of its own: the run that may be active does not fulfil it.
    let order = RunOrder { keys, from, to, on_active: Some(OnActive::After), ..RunOrder::default() };
    watch::request(&args.pipeline, &order, &args.watch, &client, context).await
}

fn from_file(file: &Path) -> Result<Vec<Key>> {
    let name = file.display();
    let text = read(file).map_err(|error| {
        Exit::Usage.fault(format!(
            "cannot read {name}: {error}\nhint: --keys-file takes a text file, one key a line"
        ))
    })?;
    let lines = text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty());
    let keys: Vec<Key> = lines
        .map(|(place, line)| whole_key(line, &format!("{name}:{}: ", place + 1)))
        .collect::<Result<_>>()?;
    if keys.is_empty() {
        return Err(Exit::Usage.fault(format!("{name} holds no keys\nhint: write one a line")));
    }
    Ok(keys)
}

fn read(file: &Path) -> std::io::Result<String> {
    if file != Path::new("-") {
        return std::fs::read_to_string(file);
    }
    let mut text = String::new();
    std::io::stdin().read_to_string(&mut text)?;
    Ok(text)
}

fn whole_key(text: &str, place: &str) -> Result<Key> {
    Ok(serde_json::from_value(key(text, place)?)?)
}

/// What begins like a list is one.
pub(super) fn key(text: &str, place: &str) -> Result<Value> {
    if !text.starts_with('[') {
        return Ok(Value::from(text));
    }
    let wrong =
        |why: &str, hint: &str| Exit::Usage.fault(format!("{place}{text} is no key: {why}\nhint: {hint}"));
    let parts: Vec<Value> = serde_json::from_str(text).map_err(|error| {
        wrong(&error.to_string(), "a key of several columns is a JSON list such as [\"7\", \"en\"]")
    })?;
    let usable = |part: &Value| part.is_string() || part.is_null() || part.is_i64() || part.is_u64();
    match !parts.is_empty() && parts.iter().all(usable) {
        true => Ok(Value::from(parts)),
        // Other numbers would have lost digits on their way.
        false => Err(wrong(
            "its values are texts, whole numbers or null",
            "write other numbers as text, such as [\"1.5\"]",
        )),
    }
}
