//! What may be repeated of a server's error: texts of errors are stored and shown to people who may not see the rows.

use tokio_postgres::error::DbError;

/// Classes of states whose messages name columns, tables and limits, and no values.
const OF_NAMES: [&str; 14] =
    ["08", "0A", "21", "23", "25", "28", "3D", "3F", "40", "42", "53", "54", "55", "57"];
/// Servers quote values in the manner of their language.
const QUOTES: [char; 13] = ['"', '\'', '«', '»', '„', '“', '”', '‘', '’', '‹', '›', '「', '」'];

/// The primary message without values; `None` where nothing of it may be kept. DETAIL and CONTEXT quote rows, and are
/// never looked at.
pub fn redacted(error: &DbError) -> Option<String> {
    // Users' own functions raise errors in whatever state they like, and write values into them.
    let is_raised = error.routine() == Some("exec_stmt_raise");
    (!is_raised).then(|| without_values(error.code().code(), error.message())).flatten()
}

fn without_values(state: &str, message: &str) -> Option<String> {
    if OF_NAMES.iter().any(|class| state.starts_with(class)) {
        return Some(message.to_owned());
    }
    state.starts_with("22").then(|| without_numbers(&without_quoted(message)))
}

/// A quoted value may hold quotes itself: all from the first to the last is masked.
fn without_quoted(message: &str) -> String {
    match (message.find(QUOTES), message.rfind(QUOTES)) {
        (Some(first), Some(last)) => {
            let behind = message[last..].chars().next().map_or(last, |quote| last + quote.len_utf8());
            format!("{}\"…\"{}", &message[..first], &message[behind..])
        }
        _ => message.to_owned(),
    }
}

/// Some messages write numbers and bytes of a value without quotes.
fn without_numbers(message: &str) -> String {
    let word = |word: &str| match word.starts_with(|c: char| c.is_ascii_digit() || c == '-') {
        true => "…".to_owned(),
        false => word.to_owned(),
    };
    message.split(' ').map(word).collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

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
    #[case("42703", "column \"titel\" does not exist", "column \"titel\" does not exist")]
    #[case(
        "23505",
        "duplicate key value violates unique constraint \"film_pkey\"",
        "duplicate key value violates unique constraint \"film_pkey\""
    )]
    fn a_message_about_data_loses_the_data_and_one_about_names_keeps_them(
        #[case] state: &str,
        #[case] message: &str,
        #[case] kept: &str,
    ) {
        assert_eq!(without_values(state, message).as_deref(), Some(kept));
    }

    #[rstest]
    #[case("P0001", "card 4111 is bad")]
    #[case("38000", "card 4111 is bad")]
    #[case("XX000", "card 4111 is bad")]
    fn of_what_nobody_knows_nothing_is_kept(#[case] state: &str, #[case] message: &str) {
        assert_eq!(without_values(state, message), None);
    }
}
