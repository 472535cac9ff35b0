//! The only place that prints: data on stdout as a table or a document, talk on stderr.

mod progress;
mod table;

use std::io::{self, Write};

use clap::ValueEnum;
use comfy_table::Table;
use jiff::Timestamp;
use serde::Serialize;

pub(crate) use vitrina_core::shell_word;

pub(crate) use progress::{Pace, Progress, counting, elapsing};
pub(crate) use table::{fitting, table, wide_table, yielding};

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, ValueEnum)]
pub(crate) enum Format {
    #[default]
    Table,
    Json,
    // A line of JSON for each item of a list. No help of its own: that would make the help of every command a long one.
    Ndjson,
    Yaml,
}

impl Format {
    /// Prints the document itself, or what a person would rather read.
    pub(crate) fn show(self, document: &impl Serialize, text: impl FnOnce() -> String) {
        match self {
            Self::Table => print(&text()),
            format => print(&format.written(document)),
        }
    }

    /// An item of a list that is printed as it grows: a line of JSON, or an item of a YAML sequence.
    pub(crate) fn show_item(self, item: &impl Serialize, text: impl FnOnce() -> String) {
        print(&self.item(item, text));
    }

    pub(crate) fn item(self, item: &impl Serialize, text: impl FnOnce() -> String) -> String {
        match self {
            Self::Table => text(),
            Self::Json | Self::Ndjson => line(item),
            Self::Yaml => Self::Yaml.written(&[item]),
        }
    }

    fn written(self, document: &impl Serialize) -> String {
        match self {
            Self::Ndjson => {
                let document = serde_json::to_value(document).expect(TEXT_KEYS);
                let items = document.get("items").and_then(|items| items.as_array()).or(document.as_array());
                items.map_or_else(
                    || line(&document),
                    |items| items.iter().map(line).collect::<Vec<_>>().join("\n"),
                )
            }
            Self::Yaml => serde_norway::to_string(document).expect(TEXT_KEYS).trim_end().to_owned(),
            Self::Table | Self::Json => serde_json::to_string_pretty(document).expect(TEXT_KEYS),
        }
    }
}

const TEXT_KEYS: &str = "documents have text keys";

fn line(document: &impl Serialize) -> String {
    serde_json::to_string(document).expect(TEXT_KEYS)
}

/// A reader who has seen enough and closed the pipe is no error. An empty list is no line.
pub(crate) fn print(text: &str) {
    if text.is_empty() {
        return;
    }
    let mut stdout = io::stdout().lock();
    let _ = writeln!(stdout, "{text}").and_then(|()| stdout.flush());
}

/// Passes data on to stdout as it comes; answers whether somebody still reads it.
pub(crate) fn pass_on(bytes: &[u8]) -> bool {
    let mut stdout = io::stdout().lock();
    stdout.write_all(bytes).and_then(|()| stdout.flush()).is_ok()
}

/// Asks whoever sits at the terminal.
pub(crate) fn ask(question: &str) -> io::Result<bool> {
    let mut stderr = io::stderr().lock();
    write!(stderr, "{question} [y/N] ")?;
    stderr.flush()?;
    drop(stderr);
    let mut answer = String::new();
    io::stdin().read_line(&mut answer)?;
    Ok(matches!(answer.trim(), "y" | "Y" | "yes"))
}

pub(crate) fn say(text: &str) {
    let _ = writeln!(io::stderr().lock(), "{text}");
}

/// Of the terminal that data is printed on, if it is one.
fn width() -> Option<usize> {
    Some(usize::from(Table::new().width()?))
}

/// One line of text that cannot move a terminal's cursor: it may come from the data.
pub(crate) fn one_line(text: &str) -> String {
    text.chars().map(|c| if c.is_control() { ' ' } else { c }).collect()
}

/// `1,234,567`
pub(crate) fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::new();
    for (place, digit) in digits.chars().enumerate() {
        if place > 0 && (digits.len() - place).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

pub(crate) fn seconds(milliseconds: i64) -> String {
    format!("{:.2} s", milliseconds as f64 / 1000.0)
}

pub(crate) fn time(at: Timestamp) -> String {
    at.strftime("%Y-%m-%d %H:%M:%SZ").to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_is_a_document_or_a_line_for_each_item() {
        let list = serde_json::json!({"items": [{"name": "a"}, {"name": "b"}], "next_cursor": null});
        assert_eq!(Format::Ndjson.written(&list), "{\"name\":\"a\"}\n{\"name\":\"b\"}");
        assert_eq!(Format::Ndjson.written(&["a", "b"]), "\"a\"\n\"b\"");
        assert_eq!(Format::Ndjson.written(&serde_json::json!({"name": "a"})), "{\"name\":\"a\"}");
        assert_eq!(Format::Yaml.written(&list), "items:\n- name: a\n- name: b\nnext_cursor: null");
    }

    #[test]
    fn large_numbers_are_grouped_by_thousands() {
        assert_eq!([0, 999, 1000, 1_234_567].map(grouped), ["0", "999", "1,000", "1,234,567"]);
    }

    #[test]
    fn what_comes_from_the_data_stays_on_its_line() {
        assert_eq!(one_line("a\nb\u{1b}[2J"), "a b [2J");
    }
}
