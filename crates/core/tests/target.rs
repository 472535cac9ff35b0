//! The one check of R-CFG-1: which names are names at all, and which of them may be written.

use proptest::prelude::*;
use rstest::rstest;
use vitrina_core::{AllowedTargets, Error, Remedy, Target, TargetName, is_allowed_target};

#[rstest]
#[case("analytics.film_dim")]
#[case("analytics._private2")]
#[case::a_keyword_needs_no_quotes_behind_a_dot("analytics.order")]
#[case("es:film_dim")]
#[case("es:film-dim.v2")]
#[case("es:2026-films")]
fn an_allowed_name_is_parsed_and_written_back_as_it_was(#[case] text: &str) {
    assert_eq!(is_allowed_target(text, &AllowedTargets::default()).unwrap().to_string(), text);
}

#[test]
fn the_two_kinds_of_target_are_told_apart() {
    let table = TargetName::Postgres { schema: "analytics".into(), table: "film_dim".into() };
    let index = TargetName::Named { kind: "es".into(), name: "analytics.film_dim".into() };
    assert_eq!("analytics.film_dim".parse::<TargetName>().unwrap(), table);
    assert_eq!("es:analytics.film_dim".parse::<TargetName>().unwrap(), index);
}

#[rstest]
#[case::empty("")]
#[case::no_schema("film_dim")]
#[case::no_table("analytics.")]
#[case::only_a_dot(".")]
#[case::nothing_before_the_dot(".film_dim")]
#[case::a_database_too("cinema.analytics.film_dim")]
#[case::upper_case("analytics.Film")]
#[case::quoted("analytics.\"film\"")]
#[case::a_digit_first("analytics.1film")]
#[case::a_dollar("analytics.film$1")]
#[case::a_dash("analytics.film-dim")]
#[case::another_script("analytics.фильм")]
#[case::a_letter_that_only_looks_plain("аnalytics.film_dim")]
#[case::a_second_statement("analytics.film; drop table content.film_work")]
#[case::a_comment("analytics.film--")]
#[case::a_column_list("analytics.film(id)")]
#[case::a_space_before(" analytics.film")]
#[case::a_line_break_behind("analytics.film\n")]
#[case::a_null_byte("analytics.film\0")]
#[case::the_pattern_itself("analytics.*")]
#[case::no_index("es:")]
#[case::all_indexes("es:*")]
#[case::all_indexes_by_another_name("es:_all")]
#[case::several_indexes("es:a,b")]
#[case::a_hidden_index("es:.kibana")]
#[case::the_parent_path("es:..")]
#[case::another_path("es:film/_doc")]
#[case::an_escaped_path("es:film%2f_doc")]
#[case::a_query("es:film?refresh")]
#[case::an_index_in_upper_case("es:Film")]
#[case::the_prefix_in_upper_case("ES:film")]
#[case::a_private_alias("es:film~w5")]
#[case::an_index_of_our_own("es:vitrina-control")]
#[case::a_dash_first("es:-film")]
fn what_is_no_name_is_refused_whatever_is_allowed(#[case] text: &str) {
    let everything = AllowedTargets(vec!["*".into(), text.into()]);
    let error = is_allowed_target(text, &everything).unwrap_err();
    assert_refused(&error, "target.name", "analytics.<table>");
}

#[rstest]
#[case(&format!("analytics.{}", "a".repeat(63)), true)]
#[case(&format!("analytics.{}", "a".repeat(64)), false)]
#[case(&format!("es:{}", "a".repeat(200)), true)]
#[case(&format!("es:{}", "a".repeat(201)), false)]
fn a_name_that_a_server_would_cut_or_refuse_is_too_long(#[case] text: &str, #[case] accepted: bool) {
    assert_eq!(is_allowed_target(text, &AllowedTargets::default()).is_ok(), accepted);
}

#[rstest]
#[case("content.film_work")]
#[case("etl.etl_pipelines")]
#[case("pg_catalog.pg_authid")]
#[case("auth.user")]
#[case::a_schema_that_begins_alike("analytics_private.film_dim")]
fn only_marts_and_indexes_are_allowed_unless_configured(#[case] text: &str) {
    let error = is_allowed_target(text, &AllowedTargets::default()).unwrap_err();
    assert_refused(&error, "target.not_allowed", "analytics.*, es:*");
    assert!(error.to_string().contains(text), "{error}");
}

#[rstest]
#[case::an_exact_name("analytics.film_dim", "analytics.film_dim", true)]
#[case::an_exact_name_is_no_prefix("analytics.film", "analytics.film_dim", false)]
#[case::an_exact_name_is_no_suffix("film_dim", "analytics.film_dim", false)]
#[case::a_prefix_of_a_table("analytics.film_*", "analytics.film_dim", true)]
#[case::a_prefix_of_another_table("analytics.film_*", "analytics.user_dim", false)]
#[case::a_prefix_of_an_index("es:film*", "es:film_dim", true)]
#[case::the_whole_prefix("es:film*", "es:film", true)]
#[case::a_star_in_the_middle_stands_for_nothing("analytics.*_dim", "analytics.film_dim", false)]
#[case::tables_do_not_open_indexes("analytics.*", "es:analytics.film_dim", false)]
#[case::indexes_do_not_open_tables("es:*", "analytics.film_dim", false)]
fn a_pattern_is_an_exact_name_or_a_prefix(
    #[case] pattern: &str,
    #[case] target: &str,
    #[case] allowed: bool,
) {
    assert_eq!(is_allowed_target(target, &AllowedTargets(vec![pattern.into()])).is_ok(), allowed);
}

#[test]
fn nothing_is_allowed_by_an_empty_list() {
    let error = is_allowed_target("analytics.film_dim", &AllowedTargets(Vec::new())).unwrap_err();
    assert_eq!(error.code, "target.not_allowed");
}

#[rstest]
#[case("analytics.film_dim", "marts")]
#[case("es:film_dim", "search")]
fn a_target_nobody_has_described_goes_to_the_connection_of_its_kind(
    #[case] text: &str,
    #[case] connection: &str,
) {
    let target = Target::undescribed(&text.parse().unwrap());
    assert_eq!((target.name.as_str(), target.connection.as_str()), (text, connection));
    assert!(target.key.is_empty() && target.create_if_missing);
}

proptest! {
    #[test]
    fn an_accepted_postgres_name_never_needs_quoting(text in "analytics\\.([a-z0-9_]{0,70}|[ -~]{0,12}|\\PC{0,8})") {
        if let Ok(name) = is_allowed_target(&text, &AllowedTargets::default()) {
            let table = text.strip_prefix("analytics.").unwrap();
            prop_assert!(is_plain(table), "{table:?}");
            prop_assert_eq!(name, TargetName::Postgres { schema: "analytics".into(), table: table.into() });
        }
    }

    #[test]
    fn a_plain_name_is_always_accepted(table in "[a-z_][a-z0-9_]{0,62}") {
        let accepted = is_allowed_target(&format!("analytics.{table}"), &AllowedTargets::default());
        prop_assert!(accepted.is_ok(), "{accepted:?}");
    }

    #[test]
    fn an_accepted_index_name_is_one_segment_of_a_path(text in "es:([a-z0-9._-]{0,12}|[ -~]{0,12}|\\PC{0,8})") {
        if let Ok(TargetName::Named { name: index, .. }) = is_allowed_target(&text, &AllowedTargets::default()) {
            prop_assert!(!index.starts_with(['.', '_', '-', '+']), "{index:?}");
            prop_assert!(index.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b"._-".contains(&b)));
        }
    }

    #[test]
    fn no_text_whatever_gets_past_the_allow_list(text in "\\PC*", pattern in "[a-z.:*]{0,6}") {
        if is_allowed_target(&text, &AllowedTargets(vec![pattern.clone()])).is_ok() {
            prop_assert!(text == pattern || pattern.strip_suffix('*').is_some_and(|prefix| text.starts_with(prefix)));
        }
    }
}

/// As Postgres reads a name without quotes: folded to lower case and cut at 63 bytes, it is the same.
fn is_plain(name: &str) -> bool {
    let mut bytes = name.bytes();
    matches!(bytes.next(), Some(b'a'..=b'z' | b'_'))
        && bytes.all(|b| matches!(b, b'a'..=b'z' | b'0'..=b'9' | b'_'))
        && name.len() <= 63
}

fn assert_refused(error: &Error, code: &str, hint: &str) {
    assert_eq!((error.code, error.remedy), (code, Remedy::FixConfiguration));
    let text = error.to_string();
    let given = text.rsplit_once("\nhint: ").map(|(_, hint)| hint);
    assert!(given.is_some_and(|given| given.contains(hint)), "{text}");
}
