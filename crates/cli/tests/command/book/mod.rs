//! What the documentation tells people to type: executed as it stands, page by page, and held against what the page shows.

mod cinema;
mod clone;
mod page;
mod reader;

use std::net::TcpListener;
use std::path::{Path, PathBuf};

use vitrina_testbed::SearchServer;

use self::cinema::{Cinema, Named};
use self::page::blocks;
use self::reader::Reader;
use super::collector::Collector;

const TUTORIAL: &str = "docs/tutorial.md";
/// Of the sample cinema.
const PAGES: [&str; 7] = [
    "docs/api.md",
    "docs/orchestrators.md",
    "docs/reconcile.md",
    "docs/runners.md",
    OBSERVABILITY,
    REJECTS,
    "docs/files.md",
];
const OPERATIONS: &str = "docs/operations.md";
const OBSERVABILITY: &str = "docs/observability.md";
const REJECTS: &str = "docs/rejects.md";

const TOKEN: &str = "vt_of_the_book_0123456789abcdef";

fn repository() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().unwrap()
}

fn free_address() -> String {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().to_string()
}

fn python() -> (&'static str, String) {
    ("VITRINA_PYTHON_INTERPRETER", vitrina_testbed::python().display().to_string())
}

// An index of its own name needs a server of its own.
#[tokio::test]
async fn whoever_follows_the_tutorial_gets_what_it_shows() {
    let (shop, server) = (Named::create("shop").await, SearchServer::own_opensearch().await);
    let address = free_address();
    let mut reader = Reader::at(&address);
    reader.own = vec![("SHOP_URL", shop.url()), ("OPENSEARCH_URL", server.url().to_owned())];
    reader.variables = vec![("VITRINA_API_LISTEN", address), python()];
    reader.follows(TUTORIAL);
}

#[tokio::test]
async fn whoever_operates_it_installs_backs_up_restores_moves_and_uninstalls_as_the_page_says() {
    let (cinema, address) = (Named::cinema().await, free_address());
    let mut reader = Reader::at(&address).with_token();
    reader.own =
        vec![("CINEMA_URL", cinema.url()), ("VITRINA_DATABASE_URL", cinema.beside("warehouse").await)];
    reader.variables.extend([("VITRINA_API_LISTEN", address), ("VITRINA_ADMIN_TOKEN", TOKEN.to_owned())]);
    reader.follows(OPERATIONS);
}

#[tokio::test]
async fn what_the_pages_tell_to_type_can_be_typed() {
    let cinema = Cinema::start().await;
    for page in PAGES {
        match page {
            OBSERVABILITY => follows_traces(cinema.reader().with_token()),
            REJECTS => {
                cinema.refuses_a_row().await;
                cinema.reader().with_token().follows(page);
            }
            page => cinema.reader().with_token().follows(page),
        }
    }
}

/// The process that the page starts sends its traces where the page says.
fn follows_traces(mut reader: Reader) {
    let (mut collector, address) = (Collector::start(), free_address());
    reader.instead.push(("127.0.0.1:4318", collector.address.to_string()));
    reader.variables.retain(|(name, _)| *name != "VITRINA_API_URL");
    reader
        .variables
        .extend([("VITRINA_API_URL", format!("http://{address}")), ("VITRINA_API_LISTEN", address)]);
    reader.follows(OBSERVABILITY);
    collector.hears("POST /pipelines/{p}/run", |_| true);
}

#[test]
fn every_block_of_commands_is_executed_or_says_why_not() {
    let executed = [&PAGES[..], &[TUTORIAL, OPERATIONS], &clone::PAGES].concat();
    for page in pages() {
        for block in blocks(&repository().join(&page)).iter().filter(|block| block.is_shell()) {
            let is_executed = executed.contains(&page.as_str()) && block.is_understood();
            assert!(
                is_executed || block.reason().is_some(),
                "{page}:{}: nobody executes this; add the page to those that are, or not-run=\"why\"",
                block.line
            );
        }
    }
}

/// Whatever people read: at the root, in docs and beside the examples.
fn pages() -> Vec<String> {
    let folders = ["", "docs/", "python/", "examples/airflow/", "examples/cinema/"];
    let pages = folders.iter().flat_map(|folder| {
        let names =
            std::fs::read_dir(repository().join(folder)).unwrap().map(|entry| entry.unwrap().file_name());
        names.map(move |name| format!("{folder}{}", name.to_string_lossy()))
    });
    pages.filter(|page| page.ends_with(".md")).collect()
}
