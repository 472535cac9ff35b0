//! Values of rows inside of texts. Who may not see rows gets these texts without the values, so whoever writes a value
//! into an error marks it, and whoever shows the text decides. Names of other pipelines are marked likewise, for those who see
//! only some pipelines.
//!
//! The marks are characters that Unicode reserves for use inside of a program: they travel through the meta-store and
//! the API's answers, and reach nobody.

use std::borrow::Cow;

use serde_json::Value;

/// Before and behind a value.
pub const MARKS: [char; 2] = ['\u{fdd0}', '\u{fdd1}'];
/// Before and behind the name of another pipeline than the text is about.
pub const NAME_MARKS: [char; 2] = ['\u{fdd2}', '\u{fdd3}'];
/// What stands in place of a value.
pub const MASK: &str = "…";

/// A part of a text that may hold values of rows.
pub fn value(text: &str) -> String {
    marked(text, MARKS)
}

/// The name or the id of another pipeline, which not everybody who reads the text may know of.
pub fn other_pipeline(name: &str) -> String {
    marked(name, NAME_MARKS)
}

fn marked(text: &str, [open, close]: [char; 2]) -> String {
    // Messages are taken apart at their hint: no value may pretend to be one.
    format!("{open}{}{close}", text.replace(MARKS, "").replace(NAME_MARKS, "").replace("\nhint: ", " hint: "))
}

/// A value that tells how far something has come: a moment says nothing about a row, all else may.
pub fn progress(text: &str) -> String {
    if is_moment(text) { text.to_owned() } else { value(text) }
}

/// All texts in a document, such as a position.
pub fn progress_of(document: Value) -> Value {
    match document {
        Value::String(text) => Value::String(progress(&text)),
        Value::Array(items) => items.into_iter().map(progress_of).collect(),
        Value::Object(fields) => fields.into_iter().map(|(name, field)| (name, progress_of(field))).collect(),
        other => other,
    }
}

/// For those who may not see rows. What is cut off inside of a value ends with it.
pub fn masked(text: &str) -> Cow<'_, str> {
    match text.contains(NAME_MARKS) {
        true => Cow::Owned(without_values(&text.replace(NAME_MARKS, "")).into_owned()),
        false => without_values(text),
    }
}

fn without_values(text: &str) -> Cow<'_, str> {
    if !text.contains(MARKS) {
        return Cow::Borrowed(text);
    }
    let [open, close] = MARKS;
    let mut parts = text.split(open);
    let first = parts.next().unwrap_or_default().replace(close, "");
    let behind = parts.map(|part| part.split_once(close).map_or("", |(_, behind)| behind).replace(close, ""));
    Cow::Owned(behind.fold(first, |text, part| text + MASK + &part))
}

/// For those who may.
pub fn shown(text: &str) -> String {
    text.replace(MARKS, "").replace(NAME_MARKS, "")
}

/// A document of which only the names of its fields may be seen.
pub fn masked_document(document: Value) -> Value {
    match document {
        Value::Array(items) => items.into_iter().map(masked_document).collect(),
        Value::Object(fields) => {
            fields.into_iter().map(|(name, field)| (name, masked_document(field))).collect()
        }
        Value::Null => Value::Null,
        _ => Value::String(MASK.to_owned()),
    }
}

fn is_moment(text: &str) -> bool {
    let date = text.get(..10).unwrap_or_default();
    let is_date =
        date.char_indices().all(|(at, c)| if matches!(at, 4 | 7) { c == '-' } else { c.is_ascii_digit() });
    let in_time = |c: char| c.is_ascii_digit() || matches!(c, ' ' | 'T' | 'Z' | ':' | '.' | '+' | '-');
    // A day alone may be somebody's birthday.
    text.len() > 10 && text.len() <= 40 && is_date && text.contains(':') && text.chars().all(in_time)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_marked_value_is_masked_for_some_and_shown_to_others() {
        let text = format!("type integer: {} at {}", value("4111"), value("row 7"));
        assert_eq!(masked(&text), "type integer: … at …");
        assert_eq!(shown(&text), "type integer: 4111 at row 7");
        assert_eq!(masked("nothing in it"), "nothing in it");
    }

    #[test]
    fn the_name_of_another_pipeline_is_marked_and_no_value_of_a_row() {
        let text = format!("{} is written by {}", value("4111"), other_pipeline("sal\u{fdd3}aries"));
        assert!(text.contains("\u{fdd2}salaries\u{fdd3}"), "{text:?}");
        assert_eq!(masked(&text), "… is written by salaries");
        assert_eq!(shown(&text), "4111 is written by salaries");
        assert_eq!(masked(&other_pipeline("salaries")), "salaries");
    }

    #[test]
    fn a_value_cannot_end_its_mark_and_a_text_that_was_cut_keeps_it() {
        let text = value("a\u{fdd1}secret\u{fdd0}");
        assert_eq!((masked(&text).as_ref(), shown(&text).as_str()), (MASK, "asecret"));
        let whole = format!("no {}", value("secret"));
        let cut = whole.strip_suffix(MARKS).unwrap();
        assert_eq!(masked(cut), "no …");
        assert_eq!(masked("odd\u{fdd1} end"), "odd end");
        assert!(!value("a\nhint: secret").contains("\nhint: "));
    }

    #[test]
    fn of_a_position_moments_are_shown_and_keys_are_not() {
        let position =
            json!({"bound": ["2026-01-02 03:04:05.6+00", "ann@example.com"], "born": "1970-01-01", "n": 7});
        let told = progress_of(position).to_string();
        let told = masked(&told);
        assert!(told.contains("2026-01-02 03:04:05.6+00"), "{told}");
        assert!(!told.contains("ann") && !told.contains("1970"), "{told}");
    }

    #[test]
    fn of_a_row_only_the_names_of_its_columns_are_left() {
        let row = json!({"title": "x", "n": 7, "list": [true, null]});
        assert_eq!(masked_document(row), json!({"title": "…", "n": "…", "list": ["…", null]}));
    }
}
