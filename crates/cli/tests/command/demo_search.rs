//! The showpiece with a search server: three indexes beside the marts, proven, searched and removed again.

use std::path::Path;

use nix::sys::signal::Signal;
use serde_json::json;
use vitrina_testbed::SearchServer;

use super::{Vitrina, place, text, vitrina};

const SMALL: [&str; 4] = ["--films", "120", "--ratings", "600"];

fn demo(directory: &Path, server: &SearchServer, arguments: &[&str]) -> Vitrina {
    let mut all = vec!["demo", "--dir", directory.to_str().unwrap(), "--listen", "127.0.0.1:0"];
    all.extend(arguments);
    vitrina(&all).variable("OPENSEARCH_URL", server.url())
}

fn clean(directory: &Path) -> String {
    let cleaned = vitrina(&["demo", "--clean", "--dir", directory.to_str().unwrap()]).output();
    assert!(cleaned.status.success() && !directory.exists());
    text(&cleaned.stderr)
}

/// All that Vitrina has made there.
async fn indexes(server: &SearchServer) -> Vec<String> {
    let found = server.get("vitrina-*/_settings?expand_wildcards=all").await;
    let names = found.as_object().unwrap().keys().cloned();
    names.filter(|name| !["vitrina-control", "vitrina-closed"].contains(&name.as_str())).collect()
}

// A server of its own: a demo's indexes have the names they have.
#[tokio::test]
async fn a_demo_with_a_search_server_proves_its_indexes_searches_them_and_clean_removes_them() {
    let mut server = SearchServer::own_opensearch().await;
    let (_parent, directory) = place();

    let first = demo(&directory, &server, &[&SMALL[..], &["--once"]].concat()).ends(0);
    for line in [
        "analytics.film_dim: 120 rows, equal to its source",
        "movies_index: 120 rows read, 120 written",
        "es:film_dim: 120 documents, equal to its source",
        "es:film_rating_agg: ",
        "es:movies: 120 documents, equal to its source",
        "es:movies, searched for \"песни северных морей\"",
        "\n  Star Wars: Episode VI - Return of the Jedi (1983), Action, Adventure, Sci-Fi\n",
    ] {
        assert!(first.contains(line), "{line} is not in {first}");
    }
    assert_eq!(indexes(&server).await.len(), 3);

    a_visitor_types_what_is_suggested(&directory, &server);
    a_document_that_no_row_stands_for_is_found(&directory, &server).await;
    a_demo_without_a_server_leaves_the_indexes_alone(&directory);

    let said = clean(&directory);
    assert!(said.contains(&format!("indexes at {}", server.url())), "{said}");
    assert_eq!(indexes(&server).await, Vec::<String>::new());
    demo(&directory, &server, &[&SMALL[..], &["--once"]].concat()).ends(0);
    server.kill();
    let said = clean(&directory);
    assert!(said.contains("the demo's indexes stay at"), "{said}");
    let error = demo(&directory, &server, &["--once"]).refuses(4);
    assert!(error.contains("which OPENSEARCH_URL names") && !directory.exists(), "{error}");
}

fn a_visitor_types_what_is_suggested(directory: &Path, server: &SearchServer) {
    let mut running = demo(directory, server, &[]).start();
    let printed = running.prints_until("Ctrl-C stops everything");
    let suggested = |part: &str| printed.iter().find(|line| line.starts_with("  ") && line.contains(part));
    let searched = running.shell(suggested("/movies/_search").unwrap());
    assert!(text(&searched.stdout).contains("Return of the Jedi"), "{searched:?}");
    let run = running.shell(suggested("run movies_index --watch").unwrap());
    assert!(text(&run.stdout).contains("is SUCCESS"), "{run:?}");
    running.signal(Signal::SIGTERM);
    running.ends(0);
}

async fn a_document_that_no_row_stands_for_is_found(directory: &Path, server: &SearchServer) {
    server.call("PUT", "movies/_doc/ghost", json!({"title": "Nobody's"})).await;
    let shown = demo(directory, server, &["--once"]).ends(3);
    assert!(shown.contains("es:movies: 121 documents, DIFFERS: 0 missing, 1 extra, 0 different"), "{shown}");
    assert!(shown.contains("es:film_dim: 120 documents, equal"), "{shown}");
}

fn a_demo_without_a_server_leaves_the_indexes_alone(directory: &Path) {
    let path = directory.to_str().unwrap();
    let output = vitrina(&["demo", "--once", "--dir", path, "--listen", "127.0.0.1:0"]).output();
    assert!(output.status.success() && !text(&output.stdout).contains("es:"), "{output:?}");
    assert!(text(&output.stderr).contains("no search server is named"), "{output:?}");
}

#[test]
fn two_search_servers_and_what_is_no_server_are_refused_before_anything_starts() {
    let (_parent, directory) = place();
    let demo = || vitrina(&["demo", "--once", "--dir", directory.to_str().unwrap()]);
    let both =
        demo().variable("OPENSEARCH_URL", "http://a").variable("ELASTICSEARCH_URL", "http://b").refuses(2);
    assert!(both.contains("are both set"), "{both}");
    let strange = demo().variable("ELASTICSEARCH_URL", "postgres://u:s3cret@h").refuses(2);
    assert!(strange.contains("ELASTICSEARCH_URL") && !strange.contains("s3cret"), "{strange}");
    assert!(!directory.exists());
}
