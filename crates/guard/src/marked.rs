//! A server's error as it may be kept: texts of errors are stored, and shown to people who may not see the rows. What
//! may be a value of a row is marked in them.

use tokio_postgres::error::{DbError, ErrorPosition};
use vitrina_core::values::value;

/// Classes of states whose messages name logins, limits and locks of the server, and nothing of rows.
const OF_THE_SERVER: [&str; 6] = ["08", "25", "28", "40", "53", "57"];
/// Rights, and locks that were not to be had.
const OF_NAMES: [&str; 2] = ["42501", "55P03"];
/// Classes of messages whose words are the server's own, and which may quote a value: data exceptions, and what a value
/// raises that is taken for a name (`title::regclass`) or is too long for what it is used as.
const MAY_QUOTE: [&str; 9] = ["0A", "21", "22", "23", "3D", "3F", "42", "54", "55"];
/// Servers quote values in the manner of their language.
const QUOTES: [char; 13] = ['"', '\'', '«', '»', '„', '“', '”', '‘', '’', '‹', '›', '「', '」'];
/// What follows may be a value without quotes: `operator does not exist: +++`.
const UNQUOTED_BEHIND: [&str; 3] = [": ", " : ", " named "];

/// The primary message with its values marked. DETAIL and CONTEXT quote whole rows, and are never looked at.
pub fn marked(error: &DbError) -> String {
    let (state, message) = (error.code().code(), error.message());
    // Users' own functions raise errors in whatever state they like, and write values into them.
    if error.routine() == Some("exec_stmt_raise") {
        return value(message);
    }
    let is_about_text = matches!(error.position(), Some(ErrorPosition::Original(_)));
    let is_fatal = matches!(error.severity(), "FATAL" | "PANIC");
    if is_about_text && !state.starts_with("22") || is_fatal {
        return message.to_owned();
    }
    let fields = [error.schema(), error.table(), error.column(), error.constraint(), error.datatype()];
    let names: Vec<&str> = fields.into_iter().flatten().collect();
    marked_message(state, message, &names)
}

/// `names` are those of tables, columns and constraints that the server tells of beside its message.
fn marked_message(state: &str, message: &str, names: &[&str]) -> String {
    let is_of = |classes: &[&str]| classes.iter().any(|class| state.starts_with(class));
    if is_of(&OF_THE_SERVER) || is_of(&OF_NAMES) {
        return message.to_owned();
    }
    if !is_of(&MAY_QUOTE) {
        return value(message);
    }
    if state.starts_with("23") && all_named(message, names) {
        return message.to_owned();
    }
    let numbers = state.starts_with("22") || state.starts_with("54");
    match (message.find(QUOTES), message.rfind(QUOTES)) {
        // A quoted value may hold quotes itself: all from the first to the last is one.
        (Some(first), Some(last)) => {
            let behind = message[last..].chars().next().map_or(last, |quote| last + quote.len_utf8());
            let rest = |text| if numbers { without_numbers(text) } else { text.to_owned() };
            let quoted = message[first..behind].trim_matches(QUOTES);
            format!("{}\"{}\"{}", rest(&message[..first]), value(quoted), rest(&message[behind..]))
        }
        _ if numbers => without_numbers(message),
        _ => without_end(message),
    }
}

/// Every quoted part is a name.
fn all_named(message: &str, names: &[&str]) -> bool {
    let mut parts = message.split(QUOTES).skip(1).step_by(2);
    message.matches(QUOTES).count().is_multiple_of(2) && parts.all(|part| names.contains(&part))
}

/// Some messages write numbers and bytes of a value without quotes.
fn without_numbers(message: &str) -> String {
    let is_number =
        |word: &str| word.trim_start_matches('(').starts_with(|c: char| c.is_ascii_digit() || c == '-');
    let word = |word: &str| if is_number(word) { value(word) } else { word.to_owned() };
    message.split(' ').map(word).collect::<Vec<_>>().join(" ")
}

fn without_end(message: &str) -> String {
    let begins = UNQUOTED_BEHIND.iter().filter_map(|words| message.find(words).map(|at| at + words.len()));
    match begins.min() {
        Some(at) => format!("{}{}", &message[..at], value(&message[at..])),
        None => message.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use rstest::rstest;
    use vitrina_core::values::{masked, shown};

    use super::*;

    #[rstest]
    #[case(
        "22P02",
        "invalid input syntax for type integer: \"4111 1111\"",
        "invalid input syntax for type integer: \"…\""
    )]
    #[case(
        "22P02",
        "invalid input syntax for type json: \"{\"card\": \"4111\"}\"",
        "invalid input syntax for type json: \"…\""
    )]
    #[case(
        "22003",
        "value \"99999999999\" is out of range for type integer",
        "value \"…\" is out of range for type integer"
    )]
    #[case(
        "22P02",
        "ungültige Eingabesyntax für Typ integer: »4111«",
        "ungültige Eingabesyntax für Typ integer: \"…\""
    )]
    #[case(
        "22P02",
        "syntaxe en entrée invalide pour le type integer : « 4111 »",
        "syntaxe en entrée invalide pour le type integer : \"…\""
    )]
    #[case(
        "22021",
        "invalid byte sequence for encoding \"UTF8\": 0xd0 0x3f",
        "invalid byte sequence for encoding \"…\": … …"
    )]
    #[case("22012", "division by zero", "division by zero")]
    #[case("42P01", "relation \"4111\" does not exist", "relation \"…\" does not exist")]
    #[case("42704", "type \"4111\" does not exist", "type \"…\" does not exist")]
    #[case("42883", "operator does not exist: 4111", "operator does not exist: …")]
    #[case("42725", "more than one operator named 4111", "more than one operator named …")]
    #[case("3F000", "schema \"4111\" does not exist", "schema \"…\" does not exist")]
    #[case(
        "0A000",
        "cross-database references are not implemented: \"4111.a.b\"",
        "cross-database references are not implemented: \"…\""
    )]
    #[case("54000", "word is too long in tsquery: \"4111\"", "word is too long in tsquery: \"…\"")]
    #[case(
        "54000",
        "string is too long for tsvector (4111 bytes, max 5 bytes)",
        "string is too long for tsvector … bytes, max … bytes)"
    )]
    #[case(
        "23505",
        "duplicate key value violates unique constraint \"film_pkey\"",
        "duplicate key value violates unique constraint \"film_pkey\""
    )]
    #[case(
        "23502",
        "null value in column \"title\" of relation \"film\" violates not-null constraint",
        "null value in column \"title\" of relation \"film\" violates not-null constraint"
    )]
    #[case("23514", "card \"4111\" is bad", "card \"…\" is bad")]
    #[case("42501", "permission denied for table film", "permission denied for table film")]
    #[case("P0001", "card 4111 is bad", "…")]
    #[case("38000", "card 4111 is bad", "…")]
    #[case("XX000", "card 4111 is bad", "…")]
    fn a_message_about_data_is_masked_where_it_quotes_the_data(
        #[case] state: &str,
        #[case] message: &str,
        #[case] left: &str,
    ) {
        let marked = marked_message(state, message, &["film_pkey", "title", "film"]);
        assert_eq!(masked(&marked), left);
        let plain = |text: &str| text.replace(QUOTES, "").replace(' ', "");
        assert_eq!(plain(&shown(&marked)), plain(message));
    }
}
