//! Pages whose commands are typed in a clone of the repository.

use std::path::Path;

use vitrina_testbed::{Database, SearchServer};

use super::cinema::Named;
use super::page::blocks;
use super::reader::Reader;
use super::{free_address, python, repository};
use crate::{Running, place, vitrina};

pub(super) const PAGES: [&str; 5] = [README, DEMO, SEARCH, PYTHON, SDK];
const README: &str = "README.md";
const DEMO: &str = "docs/demo.md";
const SEARCH: &str = "docs/search.md";
const PYTHON: &str = "docs/python.md";
const SDK: &str = "python/README.md";

/// Whoever has `make demo` at a free address, and what it leaves in a directory of the test.
fn visitor(demo: &Path) -> Reader {
    let address = free_address();
    let mut reader = Reader::at(&address).in_a_clone();
    reader.variables.extend([
        ("ARGS", format!("--listen {address}")),
        ("DEMO_DIR", demo.display().to_string()),
        ("VITRINA_API_URL", format!("http://{address}")),
    ]);
    reader.afterwards = "make demo ARGS=--clean";
    reader
}

#[tokio::test]
async fn whoever_follows_the_readme_has_the_demo_and_then_databases_of_their_own() {
    let (_parent, demo) = place();
    let (database, search) = (Named::cinema().await, SearchServer::opensearch().await);
    let mut reader = visitor(&demo);
    reader.variables.push(("VITRINA_API_LISTEN", free_address()));
    for (file, password) in [("vitrina.password", "of-vitrina"), ("reader.password", "of-the-reader")] {
        std::fs::write(reader.directory.path().join(file), password).unwrap();
    }
    reader.instead.extend([
        ("postgres://owner:…@db/cinema", database.url()),
        ("postgres://vitrina:…@db/cinema", database.url_as("vitrina", "of-vitrina")),
        ("postgres://vitrina_reader:…@db/cinema", database.url_as("vitrina_reader", "of-the-reader")),
        ("https://vitrina:…@search:9200", search.url().to_owned()),
    ]);
    reader.follows(README);
}

/// A run is asked for and watched in another terminal, or its end is waited for.
const RUNS_END: &str =
    "while vitrina status -o ndjson 2>/dev/null | grep -qE 'RUN_REQUESTED|RUNNING'; do sleep 0.2; done";

#[tokio::test]
async fn whoever_plays_the_demo_script_shows_what_it_says() {
    let ((_parent, stand), (_other, demo)) = (place(), place());
    let mut reader = visitor(&demo);
    let port = reader.instead[0].1.split(':').nth(1).unwrap().to_owned();
    reader.variables.extend([
        ("STAND", "local".to_owned()),
        ("STAND_DIR", stand.display().to_string()),
        ("API_PORT", port),
        ("ELASTICSEARCH_PORT", port_of_nobody()),
    ]);
    reader
        .instead
        .extend([("9200", port_of_nobody()), ("/var/lib/vitrina/demo", demo.display().to_string())]);
    reader.patience = RUNS_END;
    reader.afterwards = "make down; make demo ARGS=--clean";
    reader.follows(DEMO);
}

#[tokio::test]
async fn whoever_tries_an_index_can_go_back_to_what_it_was() {
    let (_parent, demo) = place();
    let mut reader = visitor(&demo);
    reader.instead.push(("9200", port_of_nobody()));
    reader.follows(SEARCH);
}

fn port_of_nobody() -> String {
    free_address().split(':').nth(1).unwrap().to_owned()
}

/// The page's own function and pipeline, and then another version of that function.
#[tokio::test]
async fn whoever_changes_a_function_is_asked_and_can_answer_as_the_page_says() {
    let db = Database::fresh().await;
    vitrina_cinema::migrate(db.url()).await.unwrap();
    vitrina_cinema::seed(db.url(), 20, 0).await.unwrap();
    let address = free_address();
    let mut reader = Reader::at(&address);
    let path = reader.directory.path().to_owned();
    reader.variables.push(("VITRINA_API_URL", format!("http://{address}")));
    let of_the_page = |name: &str| {
        let blocks = blocks(&repository().join(PYTHON));
        blocks.into_iter().find(|block| block.file() == Some(name)).unwrap_or_else(|| panic!("{name}")).body
    };
    let ask = |arguments: &[&str]| {
        let (name, interpreter) = python();
        let command = vitrina(arguments).within(&path).variable("VITRINA_DATABASE_URL", db.url());
        let command =
            command.variable("VITRINA_CONNECTIONS_CINEMA_URL", db.url()).variable(name, interpreter);
        let command = command
            .variable("VITRINA_PYTHON_MODULES", "cinema_functions")
            .variable("VITRINA_PYTHON_PATH", ".");
        command.variable("VITRINA_API_LISTEN", &address)
    };
    let up_with = |function: &str| -> Running {
        std::fs::write(path.join("cinema_functions.py"), function).unwrap();
        let mut up = ask(&["up"]).start();
        up.is_up();
        up
    };
    let function = of_the_page("cinema_functions.py");
    std::fs::write(path.join("film_slugs.yaml"), of_the_page("film_slugs.yaml")).unwrap();
    let first = up_with(&function);
    ask(&["apply", "film_slugs.yaml", "--yes"]).ends(0);
    ask(&["run", "film_slugs", "--watch"]).ends(0);
    drop(first);
    let _second = up_with(&function.replace("\"-\")}", "\"_\")}"));
    let asked = ask(&["run", "film_slugs", "--watch"]).refuses(1);
    assert!(asked.contains("the code of slug was changed"), "{asked}");
    reader.follows(PYTHON);
    let slugs = "select count(*) from analytics.film_slugs where slug like '%\\_%' and slug not like '%-%'";
    assert!(db.value::<i64>(slugs).await > 0);
}

/// Into a directory of the test, and of what the tests' Python has already.
#[test]
fn whoever_installs_the_sdk_can_test_it() {
    let mut reader = Reader::at("").in_a_clone();
    let python = vitrina_testbed::python();
    let programs = python.parent().unwrap().display().to_string();
    let prefix = reader.directory.path().join("installed").display().to_string();
    reader.before.push(programs);
    reader.variables.extend([
        ("PIP_PREFIX", prefix),
        ("PIP_NO_INDEX", "1".to_owned()),
        ("PIP_NO_BUILD_ISOLATION", "false".to_owned()),
        // All of them are another test's.
        ("PYTEST_ADDOPTS", "-k rows_test".to_owned()),
    ]);
    reader.follows(SDK);
}
