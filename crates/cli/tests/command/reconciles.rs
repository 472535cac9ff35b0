//! Is the target equal to its source? From the command line, with the store in the place of a runner.

use std::collections::BTreeMap;
use std::time::Duration;

use serde_json::{Value, json};
use tokio::task::JoinSet;
use vitrina_core::{Cells, Difference, DifferenceKind, Figures, Findings, ReconcileProgress, ReconcileStage};
use vitrina_store::{RunnerAbilities, Store, Terms};
use vitrina_testbed::Database;

use super::{Running, Vitrina, address, text, vitrina};

const FILMS: &str = "
    insert into etl.etl_pipelines (name, source_connection, source_query, target_table)
    values ('films', 'cinema', 'select id, title from content.film', 'analytics.film')";
const LEASE: Duration = Duration::from_secs(60);

/// An API, and a runner that finds what the test has told it, one after the other.
struct Stand {
    /// Before the database, so that nothing uses that when it is dropped.
    _serve: Running,
    runner: JoinSet<()>,
    api: String,
    db: Database,
    store: Store,
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
        let mut serve = on(&["serve", "--listen", "127.0.0.1:0"]).start();
        let api = address(serve.says_until("the API listens").last().unwrap());
        let store = Store::connect(db.url(), "runner", 2).await.unwrap();
        Self { _serve: serve, runner: JoinSet::new(), api: format!("http://{api}"), db, store }
    }

    fn ask(&self, arguments: &[&str]) -> Vitrina {
        vitrina(arguments).variable("VITRINA_API_URL", &self.api)
    }

    /// Ends what the commands ask for: runs at once, and a reconcile with each of these.
    fn finds(&mut self, all: impl IntoIterator<Item = Findings>) {
        let (store, all) = (self.store.clone(), all.into_iter().collect::<Vec<_>>());
        self.runner.spawn(async move {
            let mut wakeups = store.wakeups().await.unwrap();
            let mut all = all.into_iter().peekable();
            while all.peek().is_some() {
                while let Some(claim) = store.claim(&able(), &Terms::idle(LEASE)).await.unwrap() {
                    store.finish(&claim.lease).await.unwrap();
                }
                match store.take_reconcile(&able(), LEASE).await.unwrap() {
                    Some(taken) => store.finish_reconcile(&taken, &all.next().unwrap()).await.unwrap(),
                    None => drop(tokio::time::timeout(Duration::from_secs(1), wakeups.next()).await),
                }
            }
        });
    }
}

fn able() -> RunnerAbilities {
    let connections = vec!["cinema".to_owned(), "marts".to_owned()];
    RunnerAbilities { name: "r1".to_owned(), connections, ..RunnerAbilities::default() }
}

fn difference(kind: DifferenceKind, key: &str) -> Difference {
    let cells = Cells { source: Some("Nebula".to_owned()), target: None };
    let columns = match kind {
        DifferenceKind::Different => BTreeMap::from([("title".to_owned(), cells)]),
        _ => BTreeMap::new(),
    };
    Difference { kind, key: json!([key]), columns }
}

fn three() -> Findings {
    let kinds = [DifferenceKind::Missing, DifferenceKind::Different, DifferenceKind::Extra];
    found(kinds.into_iter().zip(["1", "2", "3"]).map(|(kind, key)| difference(kind, key)).collect())
}

fn found(differences: Vec<Difference>) -> Findings {
    let mut figures = Figures::default();
    for (side, greatest) in [(&mut figures.source, "20"), (&mut figures.target, "19")] {
        side.rows = 10;
        side.min.insert("id".to_owned(), Some("1".to_owned()));
        side.max.insert("id".to_owned(), Some(greatest.to_owned()));
    }
    differences.iter().for_each(|difference| figures.count(difference.kind));
    Findings { verdict: figures.verdict(), figures, differences }
}

/// What it prints and says when it ends with this code.
fn told(vitrina: Vitrina, code: i32) -> (String, String) {
    let output = vitrina.output();
    let (stdout, stderr) = (text(&output.stdout), text(&output.stderr));
    assert_eq!(output.status.code(), Some(code), "{stdout}\n{stderr}");
    (stdout, stderr)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_verdict_is_shown_with_its_figures_and_what_to_do_next() {
    let mut stand = Stand::start().await;
    stand.finds([found(vec![]), three(), three()]);
    let (equal, said) = told(stand.ask(&["reconcile", "films", "--exit-code"]), 0);
    assert!(equal.starts_with("films is equal to its source (by hash in "), "{equal}");
    let sides = "side    rows  id\nsource  10    1 … 20\ntarget  10    1 … 19\n";
    assert!(equal.ends_with(sides), "{equal}");
    assert!(!said.contains("next"), "{said}");

    let (_, said) = told(stand.ask(&["reconcile", "films", "--level", "count", "--exit-code"]), 3);
    assert!(said.contains("`vitrina reconcile films --level rows` names the rows that differ"), "{said}");
    let (differs, said) = told(stand.ask(&["reconcile", "films", "--level", "rows"]), 0);
    assert!(
        differs.starts_with("films differs from its source: 1 missing, 1 extra, 1 different (by rows in ")
    );
    let rows = "\
kind       key  column  source  target
missing    1
different  2    title   Nebula  null
extra      3\n";
    assert!(differs.ends_with(rows), "{differs}");
    assert!(said.contains("vitrina reconcile films --repair   shows what a repair would do"), "{said}");

    let status = stand.ask(&["status"]).ends(0);
    assert!(
        status.lines().next().unwrap().contains("verdict") && status.contains("differs by 3 rows"),
        "{status}"
    );
    let status = stand.ask(&["status", "films"]).ends(0);
    assert!(status.contains("\nverdict: differs by 3 rows, by rows at "), "{status}");
    let listed = stand.ask(&["reconciles", "films"]).ends(0);
    let lines: Vec<&str> = listed.lines().collect();
    assert!(lines[0].starts_with("requested") && lines.len() == 4, "{listed}");
    assert!(lines[1].contains("rows   manual   DONE    differs  3"), "{listed}");
    assert_eq!(stand.ask(&["reconciles", "--limit", "2"]).ends(0).lines().count(), 3);
}

#[tokio::test(flavor = "multi_thread")]
async fn rows_that_differ_are_listed_and_downloaded() {
    let mut stand = Stand::start().await;
    let never = stand.ask(&["differences", "films"]).refuses(2);
    assert!(never.contains("films was never compared"), "{never}");
    stand.finds([three()]);
    let document = stand.ask(&["reconcile", "films", "--level", "rows", "-o", "json"]).ends(0);
    let document: Value = serde_json::from_str(&document).unwrap();
    assert_eq!((&document["verdict"], &document["status"]), (&json!("differs"), &json!("DONE")));
    let id = document["id"].as_str().unwrap();

    let listed = stand.ask(&["differences", id, "--kind", "different"]).ends(0);
    assert_eq!(listed.lines().count(), 2, "{listed}");
    let csv = stand.ask(&["differences", "films", "--download", "csv"]).ends(0);
    assert_eq!(csv.lines().next(), Some("kind,key,column,source,target"));
    assert_eq!(csv.lines().nth(2), Some("different,\"[\"\"2\"\"]\",title,Nebula,"));
    let ndjson = stand.ask(&["differences", id, "--download", "ndjson", "--kind", "extra"]).ends(0);
    assert_eq!(ndjson, "{\"kind\":\"extra\",\"key\":[\"3\"],\"columns\":{}}\n");
    let (_, said) = told(stand.ask(&["differences", id, "--limit", "2"]), 0);
    assert!(said.contains("there are more"), "{said}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_repair_is_shown_first_made_when_agreed_to_and_proved() {
    let mut stand = Stand::start().await;
    stand.finds([three()]);
    let (shown, said) = told(stand.ask(&["reconcile", "films", "--repair"]), 3);
    assert!(shown.starts_with("films differs from its source"), "{shown}");
    assert!(said.contains("a repair reads 2 rows again and deletes 1"), "{said}");
    assert!(
        said.contains("nothing was repaired; `vitrina reconcile films --repair --yes` does it"),
        "{said}"
    );
    let runs = "select count(*) from etl.etl_runs";
    assert_eq!(stand.db.value::<i64>(runs).await, 0);

    stand.finds([three(), found(vec![])]);
    let (shown, said) = told(stand.ask(&["reconcile", "films", "--repair", "--yes"]), 0);
    assert!(said.contains(" is SUCCESS: "), "{said}");
    assert!(shown.ends_with("repaired: films is equal to its source\n"), "{shown}");
    let keys = "select keys::text from etl.etl_runs";
    assert_eq!(stand.db.value::<String>(keys).await, r#"[["1"], ["2"], ["3"]]"#);
    assert!(stand.ask(&["status", "films"]).ends(0).contains("verdict: equal, by rows"));

    stand.finds([three(), three()]);
    let refused = stand.ask(&["reconcile", "films", "--repair", "--yes"]).refuses(1);
    assert!(refused.contains("rows differ that were repaired"), "{refused}");
    stand.finds([found(vec![])]);
    let (_, said) = told(stand.ask(&["reconcile", "films", "--repair"]), 0);
    assert!(said.contains("there is nothing to repair"), "{said}");

    stand.db.execute("update etl.etl_pipelines set source_query = source_query || ' where true'").await;
    let status = stand.ask(&["status", "films"]).ends(0);
    let verdict = status.lines().find(|line| line.starts_with("verdict: equal, by ")).unwrap();
    assert!(verdict.ends_with(", before its configuration was changed"), "{status}");
    assert!(stand.ask(&["status"]).ends(0).contains("equal, outdated"));
    assert!(stand.ask(&["reconciles"]).ends(0).contains("equal, outdated"));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_repair_as_json_is_one_document() {
    let mut stand = Stand::start().await;
    stand.finds([three(), found(vec![])]);
    let document = stand.ask(&["reconcile", "films", "--repair", "--yes", "-o", "json"]).ends(0);
    let document: Value = serde_json::from_str(&document).unwrap();
    assert_eq!(
        (&document["reconcile"]["verdict"], &document["repair"]["upserts"]),
        (&json!("differs"), &json!(2))
    );
    assert_eq!(
        (&document["run"]["status"], &document["proof"]["verdict"]),
        (&json!("SUCCESS"), &json!("equal"))
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_repair_over_the_delete_limit_ends_before_anything_is_asked() {
    let mut stand = Stand::start().await;
    let extra = |n: i32| difference(DifferenceKind::Extra, &n.to_string());
    stand.finds([found((1..=3).map(extra).collect())]);
    let refused = stand.ask(&["reconcile", "films", "--repair", "--yes"]).refuses(5);
    assert!(
        refused.contains("3 of 10 rows are more than delete_limit 0.2 lets a repair delete"),
        "{refused}"
    );
    assert_eq!(stand.db.value::<i64>("select count(*) from etl.etl_runs").await, 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_reconcile_can_be_left_and_cancelled_and_says_why_it_failed() {
    let stand = Stand::start().await;
    let asked = stand.ask(&["reconcile", "films", "--no-wait"]).ends(0);
    assert!(asked.starts_with("reconcile ") && asked.contains(" is REQUESTED"), "{asked}");
    let id = asked.split_whitespace().nth(1).unwrap();
    let left = stand.ask(&["reconcile", "films", "--timeout", "1ms"]).refuses(124);
    assert!(left.contains(&format!("`vitrina reconciles --cancel {id}` ends it")), "{left}");

    let taken = stand.store.take_reconcile(&able(), LEASE).await.unwrap().unwrap();
    let progress = ReconcileProgress { stage: ReconcileStage::Scan, done: 1_000, total: 5_000 };
    stand.store.keep_reconcile(&taken, LEASE, Some(&progress)).await.unwrap();
    let mut waiting = stand.ask(&["reconcile", "films"]).start();
    waiting.says_until("scan: 1,000 of 5,000");
    let cancelled = stand.ask(&["reconciles", "--cancel", id]).ends(0);
    assert!(cancelled.contains("ends as soon as its runner hears of it"), "{cancelled}");
    stand.store.stop_reconcile(&taken).await.unwrap();
    waiting.ends(1);

    let mut waiting = stand.ask(&["reconcile", "films"]).start();
    waiting.says_until("waiting for a runner: no runner is alive; start one with `vitrina runner`");
    let taken = stand.store.take_reconcile(&able(), LEASE).await.unwrap().unwrap();
    stand.store.fail_reconcile(&taken, "source.away", "the source is away".to_owned()).await.unwrap();
    waiting.says_until("error: the source is away");
    waiting.ends(1);
    assert!(stand.ask(&["reconciles", "--cancel", &taken.id.to_string()]).output().status.code() == Some(5));
    assert!(stand.ask(&["reconcile", "nowhere"]).refuses(2).contains("`vitrina status` lists them"));
    let unknown = stand.ask(&["reconciles", "--cancel", "00000000-0000-0000-0000-000000000000"]).refuses(2);
    assert!(unknown.contains("`vitrina reconciles` lists them"), "{unknown}");
}

#[tokio::test]
async fn a_mart_is_compared_repaired_and_proved_from_the_command_line() {
    let db = Database::fresh().await;
    let on = |arguments: &[&str]| {
        let all = vitrina(arguments).variable("VITRINA_DATABASE_URL", db.url());
        all.variable("VITRINA_CONNECTIONS_CINEMA_URL", db.url())
    };
    on(&["migrate"]).ends(0);
    db.execute(
        "create schema content; create schema analytics;
         create table content.film (id int primary key, title text);
         create table analytics.film (id int primary key, title text);
         insert into content.film select n, 'Film ' || n from generate_series(1, 500) n",
    )
    .await;
    db.execute(FILMS).await;
    let mut up = on(&["up", "--listen", "127.0.0.1:0"]).start();
    let api = format!("http://{}", up.is_up());
    let ask = |arguments: &[&str]| vitrina(arguments).variable("VITRINA_API_URL", &api);
    ask(&["run", "films", "--watch"]).ends(0);
    for level in ["count", "hash", "rows"] {
        let said = ask(&["reconcile", "films", "--level", level, "--exit-code"]).ends(0);
        assert!(said.contains("equal"), "{said}");
    }
    db.execute(
        "delete from analytics.film where id = 7; insert into analytics.film values (9000, 'Nobody''s');
         update analytics.film set title = 'Another' where id = 20",
    )
    .await;
    let differs = ask(&["reconcile", "films", "--level", "rows", "--exit-code"]).output();
    assert_eq!(differs.status.code(), Some(3), "{differs:?}");
    let shown = text(&differs.stdout);
    for part in ["missing", "extra", "different", "Another", "Film 20"] {
        assert!(shown.contains(part), "{part}: {shown}");
    }
    let told = ask(&["differences", "films", "--download", "ndjson"]).ends(0);
    assert_eq!(told.lines().count(), 3, "{told}");
    ask(&["reconcile", "films", "--repair", "--yes"]).ends(0);
    let differ = "select count(*) from (table content.film except table analytics.film) a";
    assert_eq!(
        (db.value::<i64>(differ).await, db.value::<i64>("select count(*) from analytics.film").await),
        (0, 500)
    );
    let status: Value = serde_json::from_str(&ask(&["status", "films", "-o", "json"]).ends(0)).unwrap();
    assert_eq!(status["last_reconcile"]["verdict"], "equal", "{status}");
}
