//! The documentation is the code's: a change of the interface shows as a change of `openapi.json`.

use std::path::Path;
use std::{env, fs};

use crate::app::App;

#[tokio::test]
async fn the_interface_is_the_documented_one() {
    let app = App::start().await;
    let answer = app.get("/api/v1/openapi.json").await.assert(200);
    let now = format!("{:#}\n", answer.body);
    let golden = Path::new(env!("CARGO_MANIFEST_DIR")).join("openapi.json");
    if env::var_os("UPDATE_OPENAPI").is_some() {
        fs::write(&golden, &now).unwrap();
    }
    let documented = fs::read_to_string(&golden).unwrap_or_default();
    assert!(documented == now, "openapi.json is not what the code says: write it with UPDATE_OPENAPI=1");
}

#[tokio::test]
async fn every_call_documents_its_answers() {
    let app = App::start().await;
    let document = app.get("/openapi.json").await.assert(200).body;
    assert_eq!(document["openapi"], "3.1.0");
    for (path, item) in document["paths"].as_object().unwrap() {
        for (method, call) in item.as_object().unwrap() {
            let answers = call["responses"].as_object().unwrap();
            assert!(answers.keys().any(|status| status.starts_with('2')), "{method} {path}");
            let guarded = call["security"].is_array();
            assert_eq!(guarded, answers.contains_key("401"), "{method} {path}");
            assert_eq!(
                path.contains("{p}"),
                answers.contains_key("404") && path.contains("/pipelines/"),
                "{method} {path}"
            );
        }
    }
}
