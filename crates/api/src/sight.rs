//! Who sees values of rows, and names of pipelines outside of a scope. One right each, decided here for every answer: values are marked where they are written into a
//! text ([`vitrina_core::values`]), and each answer leaves with them or without them, by who has called.

use axum::body::{Body, Bytes, HttpBody};
use axum::http::header;
use axum::response::Response;
use futures_util::StreamExt;
use vitrina_core::values::{MARKS, MASK, NAME_MARKS};

/// Whether who has called may see rows; an answer that does not say so is for nobody who may.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct SeesRows(pub(crate) bool);

/// Whether who has called sees all pipelines: texts about one may name another.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct SeesOthers(pub(crate) bool);

/// An answer that was there before anybody called, as bytes: what looks like a mark in it is none.
#[derive(Debug, Clone, Copy)]
pub(crate) struct AsBuilt;

/// In UTF-8 all marks begin with these, and end with one more: those that open and close a value, then those of a name.
const BEGIN: [u8; 2] = [0xef, 0xb7];
const FIRST: u8 = 0x90;
const LAST: u8 = 0x93;
const _: () = assert!(MARKS[0] as u32 == 0xfdd0 && MARKS[1] as u32 == 0xfdd1);
const _: () = assert!(NAME_MARKS[0] as u32 == 0xfdd2 && NAME_MARKS[1] as u32 == 0xfdd3);

/// What is marked in a text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Marked {
    Value,
    Name,
}

/// What is whole already keeps its length; what is still being written is filtered on its way.
pub(crate) async fn resolve(response: Response, sees_rows: SeesRows, sees_others: SeesOthers) -> Response {
    if response.extensions().get::<AsBuilt>().is_some() {
        return response;
    }
    let (mut parts, body) = response.into_parts();
    let mut filter = Filter::new(sees_rows, sees_others);
    if body.size_hint().exact().is_none() {
        let chunks = body.into_data_stream().map(move |chunk| chunk.map(|bytes| filter.pass(bytes)));
        return Response::from_parts(parts, Body::from_stream(chunks));
    }
    // Held in memory: its end is known.
    let Ok(whole) = axum::body::to_bytes(body, usize::MAX).await else {
        return Response::from_parts(parts, Body::empty());
    };
    let passed = filter.pass(whole.clone());
    if passed.len() != whole.len() {
        parts.headers.remove(header::CONTENT_LENGTH);
    }
    Response::from_parts(parts, Body::from(passed))
}

struct Filter {
    sees_rows: SeesRows,
    sees_others: SeesOthers,
    /// Within something that is not shown.
    hidden: Option<Marked>,
    escaped: bool,
    /// The begin of what may become a mark.
    held: Vec<u8>,
}

impl Filter {
    fn new(sees_rows: SeesRows, sees_others: SeesOthers) -> Self {
        Self { sees_rows, sees_others, hidden: None, escaped: false, held: Vec::new() }
    }

    fn pass(&mut self, bytes: Bytes) -> Bytes {
        if self.hidden.is_none() && self.held.is_empty() && !bytes.contains(&BEGIN[0]) {
            return bytes;
        }
        let mut passed = Vec::with_capacity(bytes.len());
        for byte in bytes {
            self.take(byte, &mut passed);
        }
        passed.into()
    }

    fn take(&mut self, byte: u8, passed: &mut Vec<u8>) {
        if self.held.len() == BEGIN.len() && (FIRST..=LAST).contains(&byte) {
            self.held.clear();
            let marked = if byte - FIRST < 2 { Marked::Value } else { Marked::Name };
            return self.mark(marked, (byte - FIRST).is_multiple_of(2), passed);
        }
        if BEGIN.get(self.held.len()) == Some(&byte) {
            return self.held.push(byte);
        }
        for held in std::mem::take(&mut self.held) {
            self.tell(held, passed);
        }
        match byte == BEGIN[0] {
            true => self.held.push(byte),
            false => self.tell(byte, passed),
        }
    }

    fn mark(&mut self, marked: Marked, opens: bool, passed: &mut Vec<u8>) {
        let is_shown = match marked {
            Marked::Value => self.sees_rows.0,
            Marked::Name => self.sees_others.0,
        };
        match self.hidden {
            None if opens && !is_shown => {
                passed.extend_from_slice(MASK.as_bytes());
                (self.hidden, self.escaped) = (Some(marked), false);
            }
            Some(hidden) if hidden == marked && !opens => (self.hidden, self.escaped) = (None, false),
            _ => {}
        }
    }

    /// A text of JSON that was cut off inside of a value ends where it ends: what follows is another one.
    fn tell(&mut self, byte: u8, passed: &mut Vec<u8>) {
        let ends_text = byte == b'"' && !self.escaped;
        self.escaped = byte == b'\\' && !self.escaped;
        if ends_text {
            self.hidden = None;
        }
        if self.hidden.is_none() {
            passed.push(byte);
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};
    use vitrina_core::values::{other_pipeline, value};

    use super::*;

    fn passed(text: &str, sees_rows: bool, chunk: usize) -> String {
        passed_to(text, SeesRows(sees_rows), SeesOthers(true), chunk)
    }

    fn passed_to(text: &str, sees_rows: SeesRows, sees_others: SeesOthers, chunk: usize) -> String {
        let mut filter = Filter::new(sees_rows, sees_others);
        let chunks = text.as_bytes().chunks(chunk).map(|bytes| filter.pass(Bytes::copy_from_slice(bytes)));
        String::from_utf8(chunks.flatten().collect()).unwrap()
    }

    #[test]
    fn values_are_masked_or_shown_wherever_an_answer_is_cut_into_pieces() {
        let secret = "ann \"\\ \u{fdcf} ф \u{fdd1} \n end";
        let document =
            json!({"error": format!("bad {} here", value(secret)), "next": "\\ \"plain\"", "n": 1});
        let text = document.to_string();
        for chunk in [1, 2, 3, 5, 1000] {
            let masked: Value = serde_json::from_str(&passed(&text, false, chunk)).unwrap();
            assert_eq!(masked, json!({"error": "bad … here", "next": "\\ \"plain\"", "n": 1}));
            let shown: Value = serde_json::from_str(&passed(&text, true, chunk)).unwrap();
            assert_eq!(shown["error"], format!("bad {} here", secret.replace('\u{fdd1}', "")));
        }
    }

    #[test]
    fn a_name_of_another_pipeline_is_shown_to_who_sees_all_of_them() {
        let text = format!("{} is written by {} too", value("4111"), other_pipeline("salaries"));
        for (rows, others, expected) in [
            (true, true, "4111 is written by salaries too"),
            (true, false, "4111 is written by … too"),
            (false, true, "… is written by salaries too"),
            (false, false, "… is written by … too"),
        ] {
            for chunk in [1, 4, 1000] {
                assert_eq!(passed_to(&text, SeesRows(rows), SeesOthers(others), chunk), expected);
            }
        }
    }

    #[test]
    fn a_text_that_was_cut_inside_of_a_value_hides_no_other_text() {
        let cut = format!("bad {}", value("ann \\\" secret"));
        let document = json!({"error": cut.strip_suffix(MARKS).unwrap(), "next": "plain"}).to_string();
        let masked: Value = serde_json::from_str(&passed(&document, false, 7)).unwrap();
        assert_eq!(masked, json!({"error": "bad …", "next": "plain"}));
    }

    #[test]
    fn other_characters_of_the_same_beginning_pass_as_they_are() {
        for text in ["\u{fdcf}\u{fdd4}\u{ffff}", "ﷺ", "\u{f000}"] {
            assert_eq!((passed(text, false, 1), passed(text, true, 2)), (text.to_owned(), text.to_owned()));
        }
    }
}
