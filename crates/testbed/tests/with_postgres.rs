//! `with_postgres` gives a command its servers, hands over its end, and leaves nothing behind.
#![expect(clippy::unwrap_used, reason = "verbs of tests may fail as loudly as tests")]

use std::fs::{self, Permissions};
use std::io::{BufRead, BufReader};
use std::os::unix::fs::PermissionsExt;
use std::process::{Child, Command, Stdio};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::Value;
use tempfile::TempDir;
use vitrina_testbed::{SearchServer, eventually, http_client};

/// Where the server goes: other users must be able to enter it, for when the tests run as root.
fn open_directory() -> TempDir {
    tempfile::Builder::new().permissions(Permissions::from_mode(0o711)).tempdir().unwrap()
}

fn with_postgres(directory: &TempDir, script: &str) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_with_postgres"));
    command.args(["sh", "-c", script]).env("TMPDIR", directory.path()).env("RUST_TEST_THREADS", "1");
    command.stdin(Stdio::piped());
    command
}

/// The command and the first line it wrote.
fn started(mut command: Command) -> (Child, String) {
    let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
    let mut line = String::new();
    BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
    (child, line.trim().to_owned())
}

fn send(child: &Child, signal: Signal) {
    kill(Pid::from_raw(child.id().cast_signed()), signal).unwrap();
}

fn is_empty(directory: &TempDir) -> bool {
    fs::read_dir(directory.path()).unwrap().next().is_none()
}

#[test]
fn the_commands_exit_code_is_handed_on_and_nothing_is_left() {
    let directory = open_directory();
    let status = with_postgres(&directory, "test -n \"$VITRINA_TEST_SERVERS\" && exit 7").status().unwrap();
    assert_eq!(status.code(), Some(7));
    assert!(is_empty(&directory));
}

#[test]
fn a_command_that_does_not_exist_is_127_and_nothing_is_left() {
    let directory = open_directory();
    let mut command = Command::new(env!("CARGO_BIN_EXE_with_postgres"));
    let status = command.arg("no-such-command").env("TMPDIR", directory.path()).status().unwrap();
    assert_eq!(status.code(), Some(127));
    assert!(is_empty(&directory));
}

#[test]
fn signals_reach_the_command() {
    for (signal, code) in [(Signal::SIGTERM, 143), (Signal::SIGINT, 130)] {
        let directory = open_directory();
        let (mut child, _) = started(with_postgres(&directory, "echo ready; exec sleep 600"));
        send(&child, signal);
        assert_eq!(child.wait().unwrap().code(), Some(code));
        assert!(is_empty(&directory));
    }
}

#[tokio::test]
async fn the_server_ends_even_when_with_postgres_is_killed() {
    let directory = open_directory();
    let (mut child, url) = started(with_postgres(&directory, "echo \"$VITRINA_TEST_SERVERS\"; read -r _"));
    let (_client, connection) = tokio_postgres::connect(&url, tokio_postgres::NoTls).await.unwrap();
    send(&child, Signal::SIGKILL);
    assert!(connection.await.is_err());
    child.wait().unwrap();
}

/// For the test below, which runs this in processes of their own.
#[tokio::test]
#[ignore = "starts a server for whoever asks"]
async fn tell_the_address_of_a_search_server() {
    let server = SearchServer::opensearch().await;
    server.get("/").await;
    eprintln!("url={}", server.url());
}

#[tokio::test]
async fn processes_share_a_search_server_that_ends_even_when_with_postgres_is_killed() {
    let directory = open_directory();
    let tell = r#"url() { "$TESTS_BINARY" --exact --ignored --nocapture tell_the_address_of_a_search_server 2>&1 | sed -n 's/.*url=//p'; }"#;
    let mut command = with_postgres(&directory, &format!("{tell}; echo \"$(url) $(url)\"; read -r _"));
    command.env("TESTS_BINARY", std::env::current_exe().unwrap()).env_remove("OPENSEARCH_URL");
    let (mut child, urls) = started(command);
    let (one, other) = urls.split_once(' ').unwrap();
    assert_eq!(one, other);
    let answer: Value = http_client().get(one).send().await.unwrap().json().await.unwrap();
    assert_eq!(answer["version"]["distribution"], "opensearch");
    send(&child, Signal::SIGKILL);
    child.wait().unwrap();
    eventually("all servers end and leave nothing", async || is_empty(&directory).then_some(())).await;
    assert!(http_client().get(one).send().await.is_err());
}
