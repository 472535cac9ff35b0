//! The web UI, as far as the server has a part in it. What it shows is tried in a browser.

use std::path::Path;

use reqwest::Method;

use crate::app::{App, send};

/// The build embeds what is there; a checkout alone has nothing.
fn is_built() -> bool {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../ui/dist/index.html").exists()
}

#[tokio::test]
async fn a_caller_is_told_who_it_is_and_what_it_may_do() {
    let app = App::start().await;
    let open = app.get("/whoami").await.assert(200);
    assert_eq!((&open.body["name"], &open.body["role"]), (&"local".into(), &"admin".into()));
    let app = App::start_with(Some("admin-token-0123456789")).await;
    let known = app.get("/whoami").await.assert(200);
    assert_eq!((&known.body["name"], &known.body["role"]), (&"admin".into(), &"admin".into()));
    send(app.anonymous(Method::GET, "/whoami")).await.assert_problem(401, "access.unauthorized");
}

#[tokio::test]
async fn the_ui_is_a_page_for_everyone_that_runs_no_script_but_its_own() {
    let app = App::start_with(Some("admin-token-0123456789")).await;
    for path in ["/ui", "/ui/", "/ui/pipelines/film.dim/runs"] {
        let page = app.anonymous(Method::GET, path).send().await.unwrap();
        if !is_built() {
            assert_eq!(page.status(), 404);
            assert!(page.text().await.unwrap().contains("scripts/ui build"));
            continue;
        }
        assert_eq!(page.status(), 200, "{path}");
        assert_eq!(page.headers()["cache-control"], "no-cache");
        let policy = page.headers()["content-security-policy"].to_str().unwrap();
        assert!(policy.contains("script-src 'self';") && !policy.contains("unsafe"), "{policy}");
        assert!(page.text().await.unwrap().contains("<script type=\"module\""));
    }
    let licences = app.anonymous(Method::GET, "/ui/licenses.md").send().await.unwrap();
    assert_eq!(licences.status() == 200, is_built());
    assert_eq!(licences.text().await.unwrap().contains("Svelte"), is_built());
}

#[tokio::test]
async fn assets_of_the_ui_may_be_kept_for_ever_and_travel_compressed() {
    let app = App::start_with(Some("admin-token-0123456789")).await;
    send(app.anonymous(Method::GET, "/ui/assets/nothing.js")).await.assert_problem(404, "path.not_found");
    if !is_built() {
        return;
    }
    let page = app.anonymous(Method::GET, "/ui").send().await.unwrap().text().await.unwrap();
    let script = page.split("src=\"").nth(1).and_then(|rest| rest.split('"').next()).expect("a script");
    for (accepted, encoding) in [("gzip, deflate, br", Some("gzip")), ("identity", None), ("gzip;q=0", None)]
    {
        let asked = app.anonymous(Method::GET, script).header("accept-encoding", accepted);
        let asset = asked.send().await.unwrap();
        let header = |name: &str| asset.headers().get(name).map(|value| value.to_str().unwrap().to_owned());
        assert_eq!(header("content-encoding").as_deref(), encoding, "{accepted}");
        assert_eq!(header("content-type").as_deref(), Some("text/javascript; charset=utf-8"));
        assert_eq!(header("cache-control").as_deref(), Some("public, max-age=31536000, immutable"));
        assert_eq!(header("x-content-type-options").as_deref(), Some("nosniff"));
    }
}

/// Compressed bytes may look like anything, also like the marks of what a caller may not see.
#[tokio::test]
async fn every_file_of_the_ui_arrives_byte_for_byte() {
    let app = App::start_with(Some("admin-token-0123456789")).await;
    let assets = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../ui/dist/assets");
    let files = std::fs::read_dir(&assets).into_iter().flatten().flatten();
    let names: Vec<String> = files.map(|file| file.file_name().to_string_lossy().into_owned()).collect();
    assert_eq!(!names.is_empty(), is_built());
    for name in names.iter().filter(|name| !name.ends_with(".gz")) {
        for (accepted, twin) in [("gzip", ".gz"), ("identity", "")] {
            let Ok(expected) = std::fs::read(assets.join(format!("{name}{twin}"))) else { continue };
            let asked =
                app.anonymous(Method::GET, &format!("/ui/assets/{name}")).header("accept-encoding", accepted);
            let arrived = asked.send().await.unwrap().bytes().await.unwrap();
            assert!(
                arrived == expected,
                "{name} as {accepted}: {} of {} bytes",
                arrived.len(),
                expected.len()
            );
        }
    }
}
