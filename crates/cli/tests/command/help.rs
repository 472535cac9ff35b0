//! What every verb says of itself. docs/cli.md is the golden of it.

use std::sync::LazyLock;

use super::vitrina;

/// Not beside every command: they are told once.
const EVERYWHERE: &str = "\nEverywhere:\n";

/// A command and its help.
struct Page {
    path: Vec<String>,
    help: String,
}

fn pages(path: &[String], found: &mut Vec<Page>) {
    let arguments: Vec<&str> = path.iter().map(String::as_str).chain(["--help"]).collect();
    let help = vitrina(&arguments).ends(0);
    let parts = parts(&help);
    found.push(Page { path: path.to_vec(), help });
    for part in parts {
        pages(&[path, &[part]].concat(), found);
    }
}

/// The names that the list of commands begins its lines with.
fn parts(help: &str) -> Vec<String> {
    let Some((_, list)) = help.split_once("\nCommands:\n") else { return Vec::new() };
    let lines = list.lines().take_while(|line| !line.is_empty()).filter(|line| !line.starts_with("   "));
    let names = lines.filter_map(|line| line.split_whitespace().next());
    names.filter(|name| *name != "help").map(str::to_owned).collect()
}

/// Asked for once.
static ALL: LazyLock<Vec<Page>> = LazyLock::new(|| {
    let mut found = Vec::new();
    pages(&[], &mut found);
    found
});

/// Of the first level.
pub(super) fn verbs() -> Vec<String> {
    parts(&vitrina(&["--help"]).ends(0))
}

fn without_what_is_everywhere(help: &str) -> String {
    let Some((before, after)) = help.split_once(EVERYWHERE) else { return help.to_owned() };
    match after.split_once("\n\n") {
        Some((_, rest)) => format!("{before}\n{rest}"),
        None => before.to_owned(),
    }
}

const INTRODUCTION: &str = "# The command line

Everything that `vitrina` can be told, as its `--help` says it.

Data goes to stdout, talk to stderr. `-o json` prints the document of the API, `-o yaml` the same as YAML, `-o ndjson` a line for each item of a
list. On a terminal tables are as wide as it is, and what takes long has a progress bar; elsewhere tables are whole, and progress is a line every ten
seconds. `NO_COLOR` is respected. [Settings](configuration.md) come from flags, the environment, `.env` and `vitrina.toml`.

| exit code | |
|---|---|
| 0 | done |
| 1 | failed |
| 2 | wrong usage, or a configuration that cannot be used |
| 3 | there are differences, or something would change |
| 4 | something needed cannot be reached, or says no |
| 5 | conflict: with what somebody else is doing, or has done |
| 124 | the time of `--timeout` is over |
| 130 | interrupted |
";

#[test]
fn the_page_of_commands_says_what_the_binary_says() {
    let mut page = INTRODUCTION.to_owned();
    for Page { path, help } in ALL.iter() {
        let help = if path.is_empty() { help.clone() } else { without_what_is_everywhere(help) };
        let title = [&["vitrina".to_owned()], &path[..]].concat().join(" ");
        page.push_str(&format!("\n## {title}\n\n```text\n{}\n```\n", help.trim_end()));
    }
    let golden = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/cli.md");
    if std::env::var_os("UPDATE_CLI").is_some() {
        std::fs::write(&golden, &page).unwrap();
    }
    let published = std::fs::read_to_string(&golden).unwrap_or_default();
    assert!(published == page, "docs/cli.md is not what the binary says: write it with UPDATE_CLI=1");
}

#[test]
fn every_verb_shows_what_to_type() {
    for Page { path, help } in ALL.iter() {
        let [verb] = path.as_slice() else { continue };
        let (_, examples) = help.split_once("\nExamples:\n").expect(verb);
        let typed = format!("vitrina {verb}");
        assert!(examples.lines().next().is_some_and(|line| line.contains(&typed)), "{verb}: {examples}");
    }
}
