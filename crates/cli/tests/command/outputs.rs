//! What the verbs print, typed one after the other at a small stand. `INSTA_UPDATE=always` writes the snapshots anew; look at them then.

use std::collections::BTreeSet;
use std::fmt::Write;

use vitrina_testbed::Database;

use super::{Running, Vitrina, text, vitrina};

const SOURCE: &str = "create schema content;
    create table content.film (id int primary key, title text not null, modified timestamptz not null);
    insert into content.film select n, 'Film ' || n, '2024-05-01'::timestamptz + n * interval '1 hour' from generate_series(1, 3) n;
    create index on content.film (modified, id); analyze content.film";

const FILMS: &str = "
targets:
  - name: analytics.film
    key: [id]
    create_if_missing: true
pipelines:
  - name: films
    source_connection: cinema
    target_table: analytics.film
    source_query: |
      select id, title, modified
        from content.film
    mode: incremental
    incremental_key: modified
    incremental_id_key: id
";

pub(super) struct Stand {
    pub(super) db: Database,
    api: String,
    _up: Running,
}

impl Stand {
    pub(super) async fn new() -> Self {
        let db = Database::fresh().await;
        db.execute(SOURCE).await;
        let mut up = configured(vitrina(&["up", "--listen", "127.0.0.1:0"]), &db).start();
        Self { api: format!("http://{}", up.is_up()), db, _up: up }
    }

    /// A transcript of these lines: what was typed, what came on stdout, and how it ended where that was not well.
    fn typed(&self, lines: &[&str]) -> String {
        let mut transcript = String::new();
        for line in lines {
            let arguments: Vec<&str> = line.split_whitespace().collect();
            let command = configured(vitrina(&arguments), &self.db).variable("VITRINA_API_URL", &self.api);
            let output = command.file("films.yaml", FILMS).output();
            write!(transcript, "$ vitrina {line}\n{}", text(&output.stdout)).unwrap();
            if !output.status.success() {
                let said = text(&output.stderr);
                writeln!(transcript, "{said}exit code {}", output.status.code().unwrap()).unwrap();
            }
            transcript.push('\n');
        }
        transcript
    }
}

pub(super) fn configured(command: Vitrina, db: &Database) -> Vitrina {
    command
        .variable("VITRINA_DATABASE_URL", db.url())
        .variable("VITRINA_CONNECTIONS_CINEMA_URL", db.url())
        .variable("VITRINA_CONNECTIONS_CINEMA_ALLOWED_SCHEMAS", "content")
        .variable("VITRINA_RUNNER_NAME", "runner-1")
}

/// What is another at every time.
const VARIES: [(&str, &str); 21] = [
    (r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}", "[id]"),
    (r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\dZ", "[time]"),
    (r"20[2-9]\d-\d\d-\d\dT[0-9:.]+Z", "[time]"),
    (r"vit_[0-9a-f]+", "[token]"),
    (r"plan [0-9a-f]{16,}", "plan [hash]"),
    (r"\d+\.\d\d ?s\b", "[took]"),
    (r"\bT_[A-Z0-9_]+_PASSWORD", "[DATABASE]_PASSWORD"),
    (r"/\S+/vitrina ", "vitrina "),
    (r"\b\d+ ms\b", "[took]"),
    (r"(_ms|token)=[0-9.]+", "$1=[number]"),
    (r"127\.0\.0\.1:\d+", "[address]"),
    (r"\bt(_|%5F)[a-z0-9_%F]+[0-9a-f]{8}\b", "[database]"),
    (r"PostgreSQL [0-9.]+( \([^)]*\))?", "PostgreSQL [version]"),
    (r"postgres://[^@ ]+@", "postgres://[login]@"),
    (r"all \d+ migrations|\d+ of \d+ migrations", "[all] migrations"),
    (r"(info  demo: ).*", "$1[…]"),
    (r"(cinema, marts +)\S+ +\d+", "$1[host]  [process]"),
    (r"etl\.etl_[a-z_., ]+", "[tables]"),
    (r#""server":\{[^}]*\}"#, r#""server":{…}"#),
    // One that has nothing to do may have ended before the answer is written.
    (r"runner-1 is (DRAINING|STOPPED)", "runner-1 is [draining]"),
    (r"(\S)   +", "$1  "),
];

pub(super) fn settings() -> insta::Settings {
    let mut settings = insta::Settings::clone_current();
    settings.set_omit_expression(true);
    VARIES.iter().for_each(|(pattern, shown)| settings.add_filter(pattern, *shown));
    settings
}

/// One stand for all of them: each verb meets what those before it have left.
#[tokio::test]
async fn every_verb_prints_what_a_person_needs() {
    let stand = Stand::new().await;
    let settings = settings();
    let chapters: [(&str, &[&str]); 4] = [
        (
            "system",
            &[
                "migrate",
                "health",
                "doctor",
                "runners",
                "conn list",
                "conn test cinema",
                "python",
                "token create ci --role viewer",
                "token list",
                "token revoke ci",
                "installation",
                "config show --origin",
            ],
        ),
        (
            "author",
            &[
                "validate films.yaml",
                "preview films.yaml --limit 2",
                "plan films.yaml",
                "diff films.yaml",
                "apply films.yaml --yes",
                "plan films.yaml",
                "targets",
                "export",
                "mart films",
                "validate films",
            ],
        ),
        (
            "operate",
            &[
                "status",
                "run films --watch",
                "status",
                "status films",
                "runs films",
                "logs films --follow",
                "state films --history",
                "rejects films",
                "backfill films 2 --watch",
                "pause films",
                "resume films --watch",
                "disable films",
                "run films",
                "enable films",
                "cancel films",
                "index rollback es:films",
            ],
        ),
        (
            "prove",
            &[
                "reconcile films",
                "reconcile films --level rows",
                "reconciles films",
                "differences films",
                "row films 2",
                "changelog status",
                "audit --limit 4",
                "delete films",
                "delete films --yes",
                "status",
                "drain runner-1",
            ],
        ),
    ];
    settings.bind(|| {
        for (chapter, lines) in chapters {
            insta::assert_snapshot!(chapter, stand.typed(lines));
        }
    });
}

/// Verbs that write files, typed one after the other in one directory, or that need nothing but themselves.
#[tokio::test]
async fn verbs_that_write_say_what_they_have_written() {
    let (db, project) = (Database::fresh().await, tempfile::tempdir().unwrap());
    db.execute(SOURCE).await;
    let url = db.url().to_owned();
    let mut transcript = String::new();
    let lines: [&[&str]; 6] = [
        &["transform", "new", "slug"],
        &["transform", "test"],
        &["transform", "new", "slug"],
        &["init", "--from", &url, "--to", &url, "--schema", "content"],
        &["roles", "--schemas", "content"],
        &["completions", "fish"],
    ];
    for line in lines {
        let interpreter = vitrina_testbed::python();
        let command =
            vitrina(line).within(project.path()).variable("VITRINA_PYTHON_INTERPRETER", interpreter);
        let output = command.output();
        let printed = text(&output.stdout);
        // A script of hundreds of lines is known by its first.
        let shown = if line[0] == "completions" { first_line(&printed) } else { printed };
        write!(transcript, "$ vitrina {}\n{}{shown}", line.join(" "), text(&output.stderr)).unwrap();
        if !output.status.success() {
            writeln!(transcript, "exit code {}", output.status.code().unwrap()).unwrap();
        }
        transcript.push('\n');
    }
    let mut settings = settings();
    // How pytest introduces itself, and how long its lines are.
    settings.add_filter(r"(?m)^(platform|rootdir:|plugins:|cachedir:) .*\n", "");
    settings.add_filter(r"=+ (\d+ passed in \[took\]) =+", "$1");
    settings.bind(|| insta::assert_snapshot!("write", transcript));
}

fn first_line(text: &str) -> String {
    format!("{}\n[…]\n", text.lines().next().unwrap())
}

/// What a verb prints is looked at by somebody before it changes.
#[test]
fn every_verb_has_a_transcript() {
    let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/command/snapshots");
    let snapshots =
        std::fs::read_dir(folder).unwrap().map(|entry| std::fs::read_to_string(entry.unwrap().path()));
    let transcripts: String = snapshots.map(Result::unwrap).collect();
    let typed = transcripts.lines().filter_map(|line| line.strip_prefix("$ vitrina ")?.split(' ').next());
    let typed: BTreeSet<&str> = typed.collect();
    let verbs = super::help::verbs();
    let verbs: BTreeSet<&str> = verbs.iter().map(String::as_str).collect();
    assert_eq!(typed, verbs, "left: verbs with a transcript; right: verbs of the binary");
}
