//! Attacks on a source by way of queries, layer by layer: each layer alone, and all of them together. After every round
//! the source is what it was.

mod source;
mod table;

use rstest::rstest;
use source::{SECRET, Source, schemas};
use table::{ATTACKS, Attack, Stop};
use vitrina_guard::{DescribeError, SampleLimits, check, check_plan, describe, sample};

/// Attacks that only the text betrays: they do no more than tell about the server, or say what somebody may not mean.
const SEEN_IN_THE_TEXT_ALONE: &[&str] = &[
    "the name of the login",
    "a name looked up in the catalogue",
    "an array of names looked up",
    "a text search looked up by its number",
    "a text search looked up in a record",
    "a text search by its number",
    "a text search of another schema",
    "a sampled table",
    "xml",
    "a table of xml",
    "a text as xml",
    "a comment by an attribute in a list of values",
    "a name by an attribute in a limit",
    "a database named before the schema",
    "more text than is read",
    "a parameter",
    "a normalization as an attribute",
];

#[test]
fn the_text_of_an_attack_is_refused_at_its_line_and_column() {
    let mut missed = Vec::new();
    for Attack { name, sql, stop } in ATTACKS {
        let findings = check(&sql(), &schemas());
        let told: Vec<_> = findings.iter().map(|found| (found.code, found.line, found.column)).collect();
        let is_right = match *stop {
            Stop::Text(code, line, column) => told.contains(&(code, line, column)),
            _ => told.is_empty(),
        };
        if !is_right {
            missed.push((name, told));
        }
    }
    assert!(missed.is_empty(), "{missed:?}");
}

#[test]
fn no_two_attacks_share_a_name() {
    let names: std::collections::BTreeSet<&str> = ATTACKS.iter().map(|attack| attack.name).collect();
    assert_eq!(names.len(), ATTACKS.len());
}

/// For a login that may read all tables and views, so that it is the plan that stops them.
#[tokio::test(flavor = "multi_thread")]
async fn the_plan_stops_attacks_that_nobody_has_read() {
    let source = Source::fresh().await;
    let owner = source.owner().await;
    for Attack { name, sql, stop } in ATTACKS {
        let found = check_plan(&owner, &sql(), &schemas(), None).await;
        let found = found.unwrap_or_else(|error| panic!("{name}: {error}"));
        match *stop {
            Stop::Text(..) if SEEN_IN_THE_TEXT_ALONE.contains(name) => {}
            // The planner works on these itself.
            Stop::Text("sql.too_much_work" | "sql.value_too_large", ..) => {}
            Stop::Text(..) => assert!(!found.is_empty(), "{name}: {}", sql()),
            Stop::Plan(code) => assert!(found.iter().any(|found| found.code == code), "{name}: {found:?}"),
            Stop::Login | Stop::Session => assert_eq!(found, [], "{name}"),
        }
    }
    assert!(source.is_unharmed().await);
}

/// Statements as they are, several at once if need be, without a transaction around them.
#[tokio::test(flavor = "multi_thread")]
async fn the_login_alone_changes_nothing_and_sees_nothing_secret() {
    let source = Source::strict().await;
    let mut reader = source.reader().await;
    for Attack { name, sql, stop } in ATTACKS {
        reader.batch_execute("set statement_timeout = '300ms'").await.unwrap();
        let answer = reader.simple_query(&sql()).await;
        let answer = format!("{answer:?}");
        assert!(!answer.contains(SECRET), "{name}: {answer}");
        if matches!(stop, Stop::Login) {
            assert!(answer.contains("E42501"), "{name}: {answer}");
        }
        if reader.batch_execute("rollback").await.is_err() {
            reader = source.reader().await;
        }
    }
    drop(reader);
    assert!(source.is_unharmed().await);
}

/// The same in transactions that are rolled back, where only PUBLIC's functions are what they were.
#[tokio::test(flavor = "multi_thread")]
async fn the_login_alone_changes_nothing_where_public_keeps_its_functions() {
    let source = Source::fresh().await;
    let mut reader = source.reader().await;
    for Attack { sql, .. } in ATTACKS {
        reader.batch_execute("begin; set local statement_timeout = '300ms'").await.unwrap();
        drop(reader.query(&sql(), &[]).await);
        if reader.batch_execute("rollback").await.is_err() {
            reader = source.reader().await;
        }
    }
    drop(reader);
    assert!(source.is_unharmed().await);
}

/// Else the tests beside this one would prove nothing.
#[rstest]
#[case::a_row("delete from auth.users")]
#[case::a_value("update content.film_work set title = 'x' where id = 7")]
#[case::a_table("create table content.new (id int)")]
#[case::a_function("create or replace function content.mail() returns text language sql as 'select null'")]
#[case::a_grant("grant select on auth.users to public")]
#[case::a_sequence("select nextval('content.visits')")]
#[case::a_large_object("select lo_create(0)")]
#[case::a_lock("select pg_advisory_lock(1)")]
#[tokio::test(flavor = "multi_thread")]
async fn harm_that_is_done_is_seen(#[case] harm: &str) {
    let source = Source::fresh().await;
    assert!(source.is_unharmed().await);
    source.execute(harm).await;
    assert!(!source.is_unharmed().await);
}

/// Of a login that could do harm: it owns the tables.
#[tokio::test(flavor = "multi_thread")]
async fn the_session_alone_changes_nothing_and_comes_to_an_end() {
    let source = Source::fresh().await;
    let mut owner = source.owner().await;
    let limits = SampleLimits { timeout: std::time::Duration::from_millis(300), ..SampleLimits::default() };
    for Attack { name, sql, stop } in ATTACKS {
        let sampled = sample(&owner, &sql(), &limits).await;
        if let (Stop::Session, Ok(sampled)) = (stop, &sampled) {
            let bytes: usize = sampled.rows.iter().flatten().flatten().map(String::len).sum();
            assert!(sampled.rows.len() <= 100 && bytes <= 1024 * 1024, "{name}");
        }
        if owner.is_closed() {
            owner = source.owner().await;
        }
        drop(describe(&owner, &sql()).await);
    }
    drop(owner);
    assert!(source.is_unharmed().await);
}

#[tokio::test(flavor = "multi_thread")]
async fn all_layers_together_stop_every_attack() {
    let source = Source::fresh().await;
    let reader = source.reader().await;
    let limits = SampleLimits { timeout: std::time::Duration::from_millis(300), ..SampleLimits::default() };
    for Attack { name, sql, stop } in ATTACKS {
        let sql = sql();
        let by_text = !check(&sql, &schemas()).is_empty();
        let by_plan = !by_text && !check_plan(&reader, &sql, &schemas(), None).await.unwrap().is_empty();
        let sampled = if by_text || by_plan { None } else { Some(sample(&reader, &sql, &limits).await) };
        match (stop, sampled) {
            (Stop::Text(..) | Stop::Plan(_) | Stop::Login, None) => {}
            (Stop::Session, Some(Ok(_) | Err(DescribeError::Sql(_)))) => {}
            (_, sampled) => panic!("{name}: {sampled:?}"),
        }
    }
    assert!(source.is_unharmed().await);
}
