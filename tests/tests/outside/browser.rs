//! The web UI as its users meet it: a real browser, the real binary, real runs. Each test is a file of `ui/tests`, played
//! by Playwright on a stand of its own.
//!
//! SCREENSHOTS=docs/images makes the pictures of the documentation.

use std::env;
use std::path::PathBuf;
use std::time::Duration;

use tokio::process::Command;
use vitrina_testbed::SearchServer;

use crate::process::Process;
use crate::stand::{Stand, TOKEN, root};

/// Longer than any file of tests takes on a busy machine.
const PATIENCE: Duration = Duration::from_secs(400);

#[tokio::test]
async fn the_list_tells_what_is_late_and_what_failed_in_a_browser() {
    play("list.spec.ts").await;
}

#[tokio::test]
async fn five_hundred_pipelines_stay_fast_in_a_browser() {
    play("fast.spec.ts").await;
}

#[tokio::test]
async fn roles_tokens_keys_and_languages_are_respected_in_a_browser() {
    play("access.spec.ts").await;
}

#[tokio::test]
async fn an_operator_runs_watches_mends_and_sets_back_in_a_browser() {
    play("operate.spec.ts").await;
}

#[tokio::test]
async fn a_pipeline_is_written_corrected_previewed_and_edited_in_a_browser() {
    play("author.spec.ts").await;
}

#[tokio::test]
async fn a_mart_is_compared_repaired_and_proved_in_a_browser() {
    play("reconcile.spec.ts").await;
}

#[tokio::test]
async fn a_row_is_found_by_its_key_in_a_browser() {
    play("row.spec.ts").await;
}

#[tokio::test]
async fn an_installation_shows_its_parts_in_a_browser() {
    play("system.spec.ts").await;
}

#[tokio::test]
async fn an_index_is_looked_at_edited_and_built_anew_in_a_browser() {
    let (mut stand, server) = tokio::join!(Stand::start(), SearchServer::opensearch());
    let indexes = server.indexes();
    // Pictures show a name that somebody would choose: whoever takes them has the server to themselves.
    let index = if screenshots().is_some() { "movies".to_owned() } else { indexes.name("movies") };
    stand.search = Some(server.url().to_owned());
    play_on(&stand, "index.spec.ts", &[("VITRINA_SEARCH_URL", server.url()), ("VITRINA_INDEX", &index)])
        .await;
}

async fn play(file: &str) {
    play_on(&Stand::start().await, file, &[]).await;
}

async fn play_on(stand: &Stand, file: &str, more: &[(&str, &str)]) {
    let _runner = stand.runner("browsed", "30s").await;
    let mut command = Command::new(root().join("scripts/ui"));
    command.args(["run", "playwright", "test", file, "--output"]).arg(stand.directory().join("results"));
    command.env_clear().env("VITRINA_URL", &stand.url).env("VITRINA_DATABASE_URL", stand.database.url());
    command.env("VITRINA_TOKEN_ADMIN", TOKEN).envs(more.iter().copied());
    for role in ["viewer", "operator"] {
        command.env(format!("VITRINA_TOKEN_{}", role.to_uppercase()), stand.token(role).await);
    }
    command.env("CHROMIUM", chromium());
    for name in ["PATH", "HOME", "XDG_CACHE_HOME"] {
        command.envs(env::var_os(name).map(|value| (name, value)));
    }
    command.envs(screenshots().map(|folder| ("SCREENSHOTS", folder)));
    let (status, said) = Process::start(file, command).patient(PATIENCE).ends().await;
    assert!(status.success(), "{said}\n\nwhat the API said of it:\n{}", stand.complaints());
    eprintln!("{said}");
}

fn screenshots() -> Option<PathBuf> {
    env::var_os("SCREENSHOTS").filter(|folder| !folder.is_empty()).map(|folder| root().join(folder))
}

/// The one that CHROMIUM names, else one of the machine's.
fn chromium() -> PathBuf {
    let named = env::var_os("CHROMIUM").filter(|path| !path.is_empty()).map(PathBuf::from);
    let path = env::var_os("PATH").unwrap_or_default();
    let names = ["chromium", "chromium-browser", "google-chrome"];
    let mut found = env::split_paths(&path).flat_map(|folder| names.map(|name| folder.join(name)));
    named
        .or_else(|| found.find(|program| program.exists()))
        .expect("there is no Chromium\nhint: TESTS=1 scripts/bootstrap installs it; or name one in CHROMIUM")
}

impl Stand {
    async fn token(&self, role: &str) -> String {
        let (status, said) =
            Process::start("token", self.vitrina(&["token", "create", role, "--role", role])).ends().await;
        assert!(status.success(), "{said}");
        said.lines().find(|line| !line.contains(' ') && !line.is_empty()).expect("a token").to_owned()
    }
}
