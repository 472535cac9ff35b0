//! What keeps a server from starting, said with a way out.

use std::io::{self, Write};
use std::net::TcpListener;
use std::sync::{Arc, Mutex};

use vitrina_api::{Server, StartError};
use vitrina_store::{Role, Store};
use vitrina_testbed::Database;

use crate::app::{migrated, settings};

/// What was logged.
#[derive(Clone, Default)]
struct Log(Arc<Mutex<Vec<u8>>>);

impl Log {
    fn new() -> (Self, impl Fn() -> Self) {
        let log = Self::default();
        let writer = log.clone();
        (log, move || writer.clone())
    }

    fn text(&self) -> String {
        String::from_utf8(self.0.lock().unwrap().clone()).unwrap()
    }
}

impl Write for Log {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap().write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

async fn refusal(listen: &str, token: Option<&str>, store: &Store) -> String {
    Server::bind(settings(listen, token), store.clone()).await.expect_err("a refusal").to_string()
}

#[tokio::test]
async fn a_taken_port_is_named_with_a_way_out() {
    let (_database, store) = migrated().await;
    let first = Server::bind(settings("127.0.0.1:0", None), store.clone()).await.unwrap();
    let taken = first.local_addr().to_string();
    let message = refusal(&taken, None, &store).await;
    assert!(
        message.starts_with(&taken)
            && message.contains("\nhint: ")
            && message.contains("--listen 127.0.0.1:0"),
        "{message}"
    );
}

#[tokio::test]
async fn a_server_that_cannot_listen_warns_of_nothing_and_changes_no_token() {
    let (_database, store) = migrated().await;
    let (log, writer) = Log::new();
    let _listening = vitrina_testbed::capture_logs(tracing_subscriber::fmt().with_writer(writer).finish());
    let other = TcpListener::bind("127.0.0.1:0").unwrap();
    let taken = other.local_addr().unwrap().to_string();
    refusal(&taken, None, &store).await;
    assert!(!log.text().contains("THE API IS OPEN"), "{}", log.text());
    refusal(&taken, Some(TOKEN), &store).await;
    assert!(!store.has_tokens().await.unwrap());
    Server::bind(settings("127.0.0.1:0", None), store).await.unwrap();
    assert!(log.text().contains("THE API IS OPEN"), "{}", log.text());
}

#[tokio::test]
async fn a_server_that_others_can_reach_needs_a_token() {
    let (_database, store) = migrated().await;
    let message = refusal("0.0.0.0:0", None, &store).await;
    assert!(message.contains("hint: set VITRINA_ADMIN_TOKEN"), "{message}");
    Server::bind(settings("0.0.0.0:0", Some(TOKEN)), store.clone()).await.unwrap();
    let owners = store.token_owners(&[vitrina_store::digest(TOKEN)]).await.unwrap();
    assert_eq!(owners.len(), 1);
    assert_eq!(owners[0].1.role, Role::Admin);
    // From now on a token exists.
    Server::bind(settings("0.0.0.0:0", None), store).await.unwrap();
}

const TOKEN: &str = "5d3f6a1c9be2470884aa61d7";

#[tokio::test]
async fn an_admin_token_that_can_be_guessed_or_read_in_a_sample_is_refused_with_what_to_do() {
    let (_database, store) = migrated().await;
    for (token, says) in [
        ("s3cret", "has 6 characters"),
        ("nineteen-characters", "has 19 characters"),
        ("change-me", "is a sample"),
        ("Change-Me-please-and-make-me-long", "is a sample"),
        ("aaaaaaaaaaaaaaaaaaaaaaaaaaaa", "over and over"),
    ] {
        let message = refusal("127.0.0.1:0", Some(token), &store).await;
        assert!(message.contains(says) && message.contains("openssl rand -hex 32"), "{token}: {message}");
        assert!(!message.contains(token), "{message}");
    }
    assert!(!store.has_tokens().await.unwrap());
}

#[tokio::test]
async fn a_second_process_with_another_admin_token_replaces_nothing() {
    let (_database, store) = migrated().await;
    Server::bind(settings("127.0.0.1:0", Some(TOKEN)), store.clone()).await.unwrap();
    let message = refusal("127.0.0.1:0", Some("another-5d3f6a1c9be2470884aa61d7"), &store).await;
    assert!(
        message.contains("has another admin token") && message.contains("vitrina token admin --replace"),
        "{message}"
    );
    assert_eq!(store.token_owners(&[vitrina_store::digest(TOKEN)]).await.unwrap().len(), 1);
    Server::bind(settings("127.0.0.1:0", Some(TOKEN)), store.clone()).await.unwrap();
    let audit = store.audit_rows(None, 10).await.unwrap();
    let told: Vec<_> = audit.iter().map(|row| (row.action.as_str(), row.subject.as_str())).collect();
    assert_eq!(told, [("token.create", "token admin")]);
}

#[tokio::test]
async fn an_empty_admin_token_is_refused() {
    let (_database, store) = migrated().await;
    let message = refusal("127.0.0.1:0", Some(" "), &store).await;
    assert!(message.starts_with("the admin token is empty"), "{message}");
}

#[tokio::test]
async fn a_meta_store_that_is_not_migrated_is_named() {
    let database = Database::fresh().await;
    let store = Store::connect(database.url(), "test", 1).await.unwrap();
    let error = Server::bind(settings("127.0.0.1:0", None), store).await.expect_err("a refusal");
    assert!(matches!(error, StartError::Store(vitrina_store::Error::NotMigrated)), "{error}");
}
