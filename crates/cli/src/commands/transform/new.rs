//! A module with a function, its test and the rows that the test compares with.

use std::fs::{self, OpenOptions};
use std::io::{ErrorKind, Write};
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};
use serde_json::json;

use crate::context::Context;
use crate::exit::Exit;
use crate::output::{self, shell_word};

pub(super) const EXAMPLES: &str = "\
Examples:
  vitrina transform new film_slug                      functions/film_slug.py and functions/tests/
  vitrina transform new film_slug --dir etl/functions";

const MODULE: &str = include_str!("module.py");
const TEST: &str = include_str!("module_test.py");
const GOLDEN: &str = include_str!("golden.json");
/// Stands for the function in these texts.
const PLACEHOLDER: &str = "my_function";

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// How pipelines call the function
    #[arg(value_parser = name)]
    name: String,
    /// Where it is written; files that are there stay
    #[arg(long, value_name = "DIRECTORY", default_value = "functions")]
    dir: PathBuf,
}

/// A name that Python, the registry and a file can all have.
fn name(text: &str) -> Result<String, String> {
    let plain = text.starts_with(|c: char| c.is_ascii_lowercase())
        && text.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_');
    if TAKEN.lines().any(|taken| taken == text) {
        return Err("Python or its tests have a module of that name, which this one would hide".to_owned());
    }
    match plain && text.len() <= 63 && !KEYWORDS.contains(&text) {
        true => Ok(text.to_owned()),
        false => {
            Err("a function has small letters, digits and `_`, a letter first, and no word of Python's own"
                .to_owned())
        }
    }
}

/// Modules of Python's library, and names that a written test has.
const TAKEN: &str = include_str!("taken.txt");

#[rustfmt::skip] // a list
const KEYWORDS: [&str; 32] = [
    "and", "as", "assert", "async", "await", "break", "class", "continue", "def", "del", "elif", "else", "except",
    "finally", "for", "from", "global", "if", "import", "in", "is", "lambda", "nonlocal", "not", "or", "pass", "raise",
    "return", "try", "while", "with", "yield",
];

pub(super) fn run(args: &Args, context: &Context) -> Result<Exit> {
    let Args { name, dir } = args;
    let tests = dir.join("tests");
    let files = [
        (dir.join(format!("{name}.py")), MODULE),
        (tests.join(format!("{name}_test.py")), TEST),
        (tests.join(format!("{name}.json")), GOLDEN),
    ];
    if let Some((taken, _)) = files.iter().find(|(path, _)| path.exists()) {
        return Err(taken_already(taken));
    }
    fs::create_dir_all(&tests).with_context(|| format!("cannot create {}", tests.display()))?;
    for (path, text) in &files {
        put(path, &text.replace(PLACEHOLDER, name))?;
    }
    let paths: Vec<&Path> = files.iter().map(|(path, _)| path.as_path()).collect();
    context.output.show(&json!({"function": name, "files": paths}), || {
        paths.iter().map(|path| format!("wrote {}", path.display())).collect::<Vec<_>>().join("\n")
    });
    lead_on(name, dir);
    Ok(Exit::Done)
}

fn put(path: &Path, text: &str) -> Result<()> {
    let created = OpenOptions::new().write(true).create_new(true).open(path);
    match created.and_then(|mut file| file.write_all(text.as_bytes())) {
        Err(error) if error.kind() == ErrorKind::AlreadyExists => Err(taken_already(path)),
        done => done.with_context(|| format!("cannot write {}", path.display())),
    }
}

fn taken_already(path: &Path) -> anyhow::Error {
    let hint = "choose another name, or another directory with --dir";
    Exit::Usage.fault(format!("{} is there already\nhint: {hint}", path.display()))
}

/// How a runner comes to know it, and a pipeline to use it.
fn lead_on(name: &str, dir: &Path) {
    let folder = toml::Value::from(dir.to_string_lossy().into_owned());
    let path = shell_word(&dir.to_string_lossy());
    output::say(&format!(
        "registered by vitrina.toml, beside what stands there already:\n  \
         [python]\n  modules = [\"{name}\"]\n  path = [{folder}]\n\
         used by a step of a pipeline:\n  - {{ order_index: 2, task_type: PYTHON, body: {name} }}\n\
         next:\n  vitrina transform test {path}"
    ));
}
