//! Reads `.env` without touching the process environment.
//!
//! Each line goes to dotenvy by itself, which gives values and errors a line number. A `$` stands for
//! itself: dotenvy would replace `${env:NAME}` by nothing, and look into the process environment.

use std::io::ErrorKind;
use std::path::Path;

use super::Origin;
use super::error::{Complaint, Problem};

pub(super) fn read(directory: &Path, problems: &mut Vec<Problem>) -> Vec<(String, String, Origin)> {
    let text = match std::fs::read_to_string(directory.join(".env")) {
        Ok(text) => text,
        Err(error) if error.kind() == ErrorKind::NotFound => return Vec::new(),
        Err(error) => {
            problems.push(Complaint::unreadable(Path::new(".env"), &error).at(None));
            return Vec::new();
        }
    };
    let mut found = Vec::new();
    for (index, line) in text.trim_start_matches('\u{feff}').lines().enumerate() {
        let origin = Origin::DotEnv { line: index + 1 };
        let shielded = shield_dollars(line) + "\n";
        match dotenvy::Iter::new(shielded.as_bytes()).next() {
            Some(Ok((name, value))) => found.push((name, value.replace(DOLLAR, "$"), origin)),
            Some(Err(_)) => problems.push(
                Complaint::new(
                    "cannot be parsed",
                    "write NAME=value, the value in single quotes if it has spaces",
                )
                .at(Some(origin)),
            ),
            None => {}
        }
    }
    found
}

/// A private-use character, which no `.env` holds.
const DOLLAR: char = '\u{e024}';

/// Replaces every `$` but an escaped one, which dotenvy itself turns into `$`.
fn shield_dollars(line: &str) -> String {
    let mut escaped = false;
    let shield = |c: char| {
        let shielded = if c == '$' && !escaped { DOLLAR } else { c };
        escaped = c == '\\' && !escaped;
        shielded
    };
    line.chars().map(shield).collect()
}
