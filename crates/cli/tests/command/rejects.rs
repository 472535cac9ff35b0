//! Rows that were refused, and rows that are read again, from the command line.

use nix::sys::signal::Signal;
use serde_json::Value;
use vitrina_testbed::Database;

use super::{Running, Vitrina, address, text, vitrina};

const FILMS: &str = "
    create schema content;
    create table content.film (id int primary key, title text not null);
    insert into content.film select n, 'Film ' || n from generate_series(1, 20) n;
    update content.film set title = 'a title that is far too long' where id in (7, 9);
    create schema analytics;
    create table analytics.film (id int primary key, title text not null check (length(title) < 20));
    insert into etl.etl_pipelines (name, source_connection, source_query, target_table)
    values ('films', 'cinema', 'select id, title from content.film', 'analytics.film')";

/// API and runner over a small source with two rows that its mart refuses.
struct Stand {
    /// Before the database, so that nothing uses that when it is dropped.
    up: Running,
    api: String,
    db: Database,
}

impl Stand {
    async fn start() -> Self {
        let db = Database::fresh().await;
        let on = |arguments: &[&str]| {
            let all = vitrina(arguments).variable("VITRINA_DATABASE_URL", db.url());
            all.variable("VITRINA_CONNECTIONS_CINEMA_URL", db.url())
        };
        on(&["migrate"]).ends(0);
        db.execute(FILMS).await;
        let mut up = on(&["up", "--listen", "127.0.0.1:0"]).start();
        let api = address(up.says_until("the API listens").last().unwrap());
        Self { up, api: format!("http://{api}"), db }
    }

    fn ask(&self, arguments: &[&str]) -> Vitrina {
        vitrina(arguments).variable("VITRINA_API_URL", &self.api)
    }

    fn end(self) {
        self.up.signal(Signal::SIGINT);
        self.up.ends(0);
    }
}

/// The cells of the line that begins with this word.
fn cells<'a>(table: &'a str, first: &str) -> Vec<&'a str> {
    let line = table.lines().find(|line| line.starts_with(first)).unwrap_or_else(|| panic!("{table}"));
    line.split("  ").map(str::trim).filter(|cell| !cell.is_empty()).collect()
}

#[tokio::test]
async fn refused_rows_are_seen_acknowledged_read_again_and_discarded() {
    let stand = Stand::start().await;
    let ask = |arguments: &[&str]| stand.ask(arguments);
    assert_eq!(ask(&["rejects", "films"]).ends(0).trim(), "films has no rejects");
    let nothing = ask(&["rejects", "films", "--retry"]).refuses(5);
    assert!(nothing.contains("no open reject"), "{nothing}");

    let failed = ask(&["run", "films", "--watch"]).output();
    assert_eq!(failed.status.code(), Some(1));
    let said = text(&failed.stderr);
    assert!(said.contains("`vitrina rejects films` shows the rows that were refused"), "{said}");

    let output = ask(&["rejects", "films"]).output();
    let (shown, said) = (text(&output.stdout), text(&output.stderr));
    assert_eq!(cells(&shown, "code")[..3], ["code", "rejects", "acknowledged"], "{shown}");
    assert_eq!(cells(&shown, "row.check")[..3], ["row.check", "2", "0"], "{shown}");
    assert_eq!(cells(&shown, "id"), ["id", "key", "code", "acknowledged", "message"], "{shown}");
    for command in ["--retry --watch", "--acknowledge", "--discard"] {
        assert!(said.contains(&format!("  vitrina rejects films {command} ")), "{said}");
    }
    let document: Value = serde_json::from_str(&ask(&["rejects", "films", "-o", "json"]).ends(0)).unwrap();
    let items = document["items"].as_array().unwrap();
    let id_of = |key: &str| items.iter().find(|item| item["key"][0] == key).unwrap()["id"].as_str().unwrap();
    let seventh = cells(&shown, id_of("7"));
    assert_eq!(seventh[..4], [id_of("7"), "7", "row.check", "no"], "{shown}");

    assert_eq!(ask(&["rejects", "films", "--acknowledge"]).ends(0).trim(), "2 rejects are acknowledged");
    assert!(
        ask(&["run", "films", "--watch"]).ends(0).contains("18 written, 0 unchanged, 0 deleted, 2 rejected")
    );
    assert_eq!(cells(&ask(&["rejects", "films"]).ends(0), id_of("7"))[3], "yes");

    stand.db.execute("update content.film set title = 'short' where id = 7").await;
    let retried = ask(&["rejects", "films", "--retry", "--id", id_of("7"), "--watch"]).output();
    assert!(text(&retried.stderr).contains("1 reject is to be read again"), "{retried:?}");
    assert!(text(&retried.stdout).contains("is SUCCESS: 1 rows read, 1 written"), "{retried:?}");
    assert_eq!(stand.db.value::<i64>("select count(*) from analytics.film where id = 7").await, 1);

    let none = ask(&["rejects", "films", "--code", "row.odd"]).ends(0);
    assert!(none.ends_with("films has no rejects of row.odd\n") && none.contains("row.check"), "{none}");
    let discarded = ask(&["rejects", "films", "--discard", "--code", "row.check"]).ends(0);
    assert_eq!(discarded.trim(), "1 reject is discarded");
    assert_eq!(ask(&["rejects", "films"]).ends(0).trim(), "films has no rejects");
    assert!(ask(&["rejects", "nowhere"]).refuses(2).contains("`vitrina status` lists them"));
    stand.end();
}

#[tokio::test]
async fn a_row_is_found_by_its_key_from_the_command_line() {
    let stand = Stand::start().await;
    stand.ask(&["rejects", "films"]).ends(0);
    stand.ask(&["run", "films", "--watch"]).refuses(1);
    let output = stand.ask(&["row", "films", "7"]).output();
    let (shown, said) = (text(&output.stdout), text(&output.stderr));
    assert!(shown.starts_with("7 is in the source only\nrejected by run "), "{shown}");
    assert!(shown.contains("row.check") && shown.contains("the target was never compared"), "{shown}");
    assert_eq!(cells(&shown, "title"), ["title", "a title that is far too long", "null"], "{shown}");
    assert!(said.contains("`vitrina backfill films 7` reads it again"), "{said}");

    stand.db.execute("update content.film set title = 'short' where id in (7, 9)").await;
    stand.ask(&["run", "films", "--watch"]).ends(0);
    let shown = stand.ask(&["row", "films", "[\"07\"]"]).ends(0);
    assert!(shown.starts_with("7 is in source and target, and equal\n"), "{shown}");
    assert!(shown.contains("by which run is not known: the target keeps no mark of it"), "{shown}");
    let document: Value =
        serde_json::from_str(&stand.ask(&["row", "films", "7", "-o", "json"]).ends(0)).unwrap();
    assert_eq!((&document["look"]["state"], &document["reject"]), (&"equal".into(), &Value::Null));
    assert!(stand.ask(&["row", "films", "seven"]).refuses(2).contains("no row can have this key"));
    stand.end();
}

#[tokio::test]
async fn rows_are_read_again_by_keys_from_the_command_line_a_file_and_stdin() {
    let stand = Stand::start().await;
    let mend = "update content.film set title = 'short ' || id; update analytics.film set title = 'stale'";
    stand.db.execute("update content.film set title = 'short' where id in (7, 9)").await;
    stand.ask(&["run", "films", "--watch"]).ends(0);
    stand.db.execute(mend).await;

    let backfill = stand.ask(&["backfill", "films", "1", "2", "-3", "--watch"]).ends(0);
    assert!(backfill.contains("is SUCCESS: 2 rows read, 2 written"), "{backfill}");
    let runs = stand.ask(&["runs", "films"]).ends(0);
    assert!(runs.lines().nth(1).unwrap().contains("backfill of 3"), "{runs}");
    let file = stand.ask(&["backfill", "films", "--keys-file", "keys.txt", "--watch"]);
    let file = file.file("keys.txt", "4\n\n[\"5\"]\r\n[6]\n").ends(0);
    assert!(file.contains("3 rows read, 3 written"), "{file}");
    let typed = stand.ask(&["backfill", "films", "--keys-file", "-", "--watch"]).reads("8\n").ends(0);
    assert!(typed.contains("1 rows read, 1 written"), "{typed}");
    let fresh = "select string_agg(id::text, ' ' order by id) from analytics.film where title <> 'stale'";
    assert_eq!(stand.db.value::<String>(fresh).await, "1 2 4 5 6 8", "and no other key");

    let range = stand.ask(&["backfill", "films", "--from", "2026-01-01", "--watch"]).refuses(2);
    assert!(range.contains("needs incremental_key") && range.contains("hint: "), "{range}");
    stand.db.execute("update etl.etl_pipelines set incremental_key = 'id'").await;
    let range = stand.ask(&["backfill", "films", "--from", "9", "--to", "11", "--watch"]).ends(0);
    assert!(range.contains("2 rows read, 2 written"), "{range}");
    let runs = stand.ask(&["runs", "films"]).ends(0);
    assert!(runs.lines().nth(1).unwrap().contains("backfill 9..11"), "{runs}");

    let refused = stand.ask(&["backfill", "films", "[1, 2]", "--watch"]).refuses(2);
    assert!(refused.contains("this key has 2 values and needs 1, one for each column of (id)"), "{refused}");
    let refused = stand.ask(&["backfill", "films", "1", "abc", "--watch"]).refuses(2);
    assert!(refused.contains("no row can have this key: its value for id is not of type"), "{refused}");
    let refused = stand.ask(&["backfill", "films", "--from", "11", "--to", "9"]).refuses(2);
    assert!(refused.contains("no row is in this range: from is greater than to"), "{refused}");
    assert!(stand.ask(&["backfill", "nowhere", "1"]).refuses(2).contains("there is no pipeline nowhere"));
    stand.end();
}

#[test]
fn a_file_without_usable_keys_is_named_with_its_line() {
    let backfill = || vitrina(&["backfill", "films", "--keys-file", "keys.txt"]);
    assert!(backfill().refuses(2).contains("cannot read keys.txt"));
    assert!(backfill().file("keys.txt", "\n  \n").refuses(2).contains("keys.txt holds no keys"));
    for (line, why) in [("[\"8\", ", "EOF"), ("[1.5]", "[\"1.5\"]"), ("[]", "texts, whole numbers or null")] {
        let error = backfill().file("keys.txt", &format!("7\n{line}\n")).refuses(2);
        assert!(error.contains(&format!("keys.txt:2: {line} is no key: ")) && error.contains(why), "{error}");
    }
}
