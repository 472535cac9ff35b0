//! Every type arrives as it was, and a comparison sees each of its columns.

use serde_json::json;
use vitrina_core::{Level, Mode, RunStatus, Verdict};

use crate::play::Play;
use crate::targets::Target;

/// A type, and two values of it that are distinct: its extremes, where every kind of target can hold them.
const TYPES: &[(&str, [&str; 2])] = &[
    ("boolean", ["true", "false"]),
    ("smallint", ["-32768", "32767"]),
    ("integer", ["-2147483648", "2147483647"]),
    ("bigint", ["-9223372036854775808", "9223372036854775807"]),
    ("real", ["1.5", "-3.4e38"]),
    ("double precision", ["0.1", "1.7976931348623157e308"]),
    ("numeric", ["12345678901234567890.123456789", "-0.0001"]),
    ("numeric(6,2)", ["9999.99", "-0.01"]),
    ("text", ["Пять \"звёзд\" \\ и ещё", ""]),
    ("varchar(10)", ["a", "b "]),
    ("char(5)", ["a", "b"]),
    ("name", ["a", "b"]),
    ("uuid", ["00000000-0000-0000-0000-000000000000", "ffffffff-ffff-ffff-ffff-ffffffffffff"]),
    ("date", ["0001-01-01", "9999-12-31"]),
    ("timestamp", ["0001-01-01 00:00:00.000001", "9999-12-31 23:59:59.999999"]),
    ("timestamptz", ["2000-01-01 00:00:00.000001+00", "9999-12-31 23:59:59.999999+00"]),
    ("time", ["00:00", "23:59:59.999999"]),
    ("timetz", ["12:00+00", "12:00+02"]),
    ("interval", ["1 mon", "2 days"]),
    ("bytea", ["", "\\x00ff"]),
    ("bit varying", ["0", "00"]),
    ("inet", ["10.0.0.1", "::1"]),
    ("cidr", ["10.0.0.0/8", "10.0.0.0/16"]),
    ("json", [r#"{"a":1}"#, r#"{"a":[1,null]}"#]),
    ("jsonb", [r#"{"a": 1.50}"#, r#"{"a": "1.50"}"#]),
    ("integer[]", ["{1,NULL,3}", "{}"]),
    ("text[]", ["{NULL}", "{\"NULL\",\"a,b\"}"]),
    ("content.mood", ["good", "bad"]),
];

async fn every_type_arrives_as_it_was_and_is_compared<T: Target>(play: Play<T>) {
    let columns: Vec<(String, String)> = [("id".to_owned(), "int".to_owned())]
        .into_iter()
        .chain(TYPES.iter().enumerate().map(|(place, (name, _))| (format!("c{place}"), (*name).to_owned())))
        .collect();
    let created: Vec<String> =
        columns.iter().map(|(name, type_name)| format!("{name} {type_name}")).collect();
    let values = |which: usize| {
        let values: Vec<_> =
            TYPES.iter().map(|(name, values)| format!("'{}'::{name}", values[which])).collect();
        values.join(", ")
    };
    let nulls = vec!["null"; TYPES.len()].join(", ");
    play.stage
        .db
        .execute(&format!(
            "create type content.mood as enum ('good', 'bad'); create table content.typed ({});
             insert into content.typed values (1, {}), (2, {}), (3, {nulls})",
            created.join(", "),
            values(0),
            values(1)
        ))
        .await;
    let target: Vec<_> = columns
        .iter()
        .map(|(name, type_name)| (name.clone(), type_name.replace("content.mood", "text")))
        .collect();
    let target = play.target.create_typed(&play.stage, &target).await;
    if let Err((_, reason)) = T::ABILITIES.compares {
        println!("not played: {reason}");
        return;
    }
    let id = play
        .stage
        .pipeline(
            json!({"target_table": target, "source_query": "select * from content.typed", "name": "typed"}),
        )
        .await;
    let load = async || {
        let run = play.stage.request_mode(id, Mode::Full).await;
        play.work_off("tester").await;
        let run = play.stage.run_record(run).await;
        assert_eq!((run.status, run.rows_rejected), (RunStatus::Success, 0), "{:?}", run.error);
        run
    };
    load().await;
    if T::ABILITIES.writes_differences.is_ok() {
        assert_eq!(load().await.rows_written, 0, "what has arrived is what was sent");
    }
    let compare = async |level| play.stage.reconcile_with(play.settings("tester"), id, level).await;
    for level in [Level::Hash, Level::Rows] {
        let compared = compare(level).await;
        assert_eq!(compared.verdict(), Verdict::Equal, "{level} {:?}", compared.differences);
    }
    for (column, _) in columns.iter().skip(1) {
        play.target.copy_value(&play.stage, column).await;
    }
    if T::ABILITIES.hashes_content.is_ok() {
        assert_eq!(compare(Level::Hash).await.verdict(), Verdict::Differs);
    }
    let compared = compare(Level::Rows).await;
    let found = &compared.differences[0].columns;
    let unseen: Vec<_> = columns.iter().skip(1).filter(|(column, _)| !found.contains_key(column)).collect();
    assert!(compared.counts() == (0, 0, 1) && unseen.is_empty(), "{unseen:?}");
    load().await;
    assert_eq!(compare(Level::Rows).await.verdict(), Verdict::Equal);
}

of_every_target!(every_type_arrives_as_it_was_and_is_compared);
