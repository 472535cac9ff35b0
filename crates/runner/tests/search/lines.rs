//! What stands between a runner and a search server in a company: certificates, passwords, keys, prefixes and limits.

use std::io;
use std::sync::{Arc, Mutex};

use secrecy::SecretString;
use serde_json::json;
use vitrina_connectors::Secret;
use vitrina_core::{PipelineId, Status};
use vitrina_testbed::{Nginx, SearchServer};

use crate::shelf::Shelf;

const PASSWORD: &str = "p@ss wörd/7%";

/// All that is logged on this thread, to the last detail of the HTTP client.
#[derive(Clone, Default)]
struct Log(Arc<Mutex<Vec<u8>>>);

impl Log {
    fn listen(&self) -> tracing::subscriber::DefaultGuard {
        let log = self.clone();
        let logger = tracing_subscriber::fmt().with_max_level(tracing::Level::TRACE).with_ansi(false);
        vitrina_testbed::capture_logs(logger.with_writer(move || log.clone()).finish())
    }

    fn text(&self) -> String {
        String::from_utf8_lossy(&self.0.lock().unwrap()).into_owned()
    }
}

impl io::Write for Log {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap().write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Shelf {
    /// Neither what the product keeps nor what is logged holds these words.
    async fn nobody_has_read(&self, words: &[&str], log: &Log) {
        let kept = "select coalesce(string_agg(t, ' '), '') from (
                      select r::text from etl.etl_runs r union all select a::text from etl.etl_attempts a) kept(t)";
        let kept: String = self.stage.db.value(kept).await;
        let logged = log.text();
        assert!(logged.contains("401"), "the log was heard");
        for word in words {
            assert!(!kept.contains(word), "{word} is in {kept}");
            let line = logged.lines().find(|line| line.contains(word));
            assert_eq!(line, None, "{word}");
        }
    }

    async fn wrote_nothing(&self, id: PipelineId) {
        assert_eq!(self.indexes.list().await, Vec::<String>::new());
        assert_eq!(self.stage.status(id).await, Status::Failed);
    }
}

#[tokio::test]
async fn an_index_is_loaded_through_tls_a_password_and_a_prefix() {
    for server in SearchServer::both().await {
        let nginx = Nginx::before(&server).tls().basic("anna", PASSWORD).prefix("search").start().await;
        let mut shelf = Shelf::new(&server, 50).await.at(&nginx.url_as("anna", PASSWORD));
        shelf.ca = Some(nginx.ca());
        let id = shelf.full(20).await;
        shelf.succeed(id).await;
        shelf.assert_true().await;
    }
}

#[tokio::test]
async fn a_server_whose_authority_nobody_knows_is_a_mistake_in_the_configuration() {
    let server = SearchServer::opensearch().await;
    let nginx = Nginx::before(&server).tls().start().await;
    let shelf = Shelf::new(&server, 5).await.at(nginx.url());
    let id = shelf.full(10).await;
    let (code, message) = shelf.fail(id).await;
    assert_eq!(code, "sink.certificate", "{message}");
    assert!(message.contains("UnknownIssuer") && message.contains("`ca`"), "{message}");
    shelf.wrote_nothing(id).await;
}

#[tokio::test]
async fn a_certificate_for_another_name_is_a_mistake_in_the_configuration() {
    let server = SearchServer::opensearch().await;
    let nginx = Nginx::before(&server).tls().start().await;
    let mut shelf = Shelf::new(&server, 5).await.at(&nginx.url().replace("127.0.0.1", "localhost"));
    shelf.ca = Some(nginx.ca());
    let id = shelf.full(10).await;
    let (code, message) = shelf.fail(id).await;
    assert_eq!(code, "sink.certificate", "{message}");
    assert!(message.contains("localhost"), "{message}");
    shelf.wrote_nothing(id).await;
}

#[tokio::test]
async fn tls_where_there_is_none_and_none_where_there_is_are_mistakes_in_the_configuration() {
    let server = SearchServer::elasticsearch().await;
    let nginx = Nginx::before(&server).tls().start().await;
    let plain = nginx.url().replace("https:", "http:");
    let encrypted = server.url().replace("http:", "https:");
    for (url, expected) in [(plain, "sink.foreign_answer"), (encrypted, "sink.tls")] {
        let shelf = Shelf::new(&server, 5).await.at(&url);
        let id = shelf.full(10).await;
        let (code, message) = shelf.fail(id).await;
        assert_eq!(code, expected, "{message}");
        assert!(message.contains("url"), "{message}");
        shelf.wrote_nothing(id).await;
    }
}

#[tokio::test]
async fn a_wrong_password_is_refused_and_told_to_nobody() {
    let server = SearchServer::elasticsearch().await;
    let nginx = Nginx::before(&server).basic("anna", PASSWORD).start().await;
    let shelf = Shelf::new(&server, 5).await.at(&nginx.url_as("anna", "swordfish"));
    let id = shelf.full(10).await;
    let log = Log::default();
    let ear = log.listen();
    let (code, message) = shelf.fail(id).await;
    drop(ear);
    assert_eq!(code, "sink.login_refused");
    assert!(message.contains("401") && message.contains("password"), "{message}");
    assert!(!message.contains("swordfish") && !message.contains("anna"), "{message}");
    shelf.nobody_has_read(&["swordfish", "anna:", "YW5uYTpzd29yZGZpc2g"], &log).await;
    shelf.wrote_nothing(id).await;
    assert!(nginx.answered(401) > 0);
}

#[tokio::test]
async fn a_key_opens_what_it_is_for_and_another_is_refused() {
    let server = SearchServer::opensearch().await;
    let nginx = Nginx::before(&server).tls().api_key("dml0cmluYTpzZWNyZXQ=").start().await;
    let mut shelf = Shelf::new(&server, 5).await.at(nginx.url());
    shelf.ca = Some(nginx.ca());
    let id = shelf.full(10).await;
    shelf.api_key = Some("b3RoZXI6d3Jvbmc=".into());
    let log = Log::default();
    let ear = log.listen();
    let (code, message) = shelf.fail(id).await;
    drop(ear);
    assert_eq!(code, "sink.login_refused");
    assert!(message.contains("api_key"), "{message}");
    shelf.nobody_has_read(&["b3RoZXI6d3Jvbmc"], &log).await;
    shelf.api_key = Some("dml0cmluYTpzZWNyZXQ=".into());
    shelf.succeed(id).await;
    shelf.assert_true().await;
}

#[tokio::test]
async fn a_key_that_was_rotated_is_read_again_and_one_that_stays_refused_gives_the_pipeline_back() {
    let server = SearchServer::opensearch().await;
    let nginx = Nginx::before(&server).tls().api_key("dml0cmluYTpzZWNyZXQ=").start().await;
    let mut shelf = Shelf::new(&server, 5).await.at(nginx.url());
    shelf.ca = Some(nginx.ca());
    let id = shelf.full(10).await;
    let rotated = || Some(SecretString::from("dml0cmluYTpzZWNyZXQ="));
    shelf.api_key = Some(Secret::from_origin("b3RoZXI6d3Jvbmc=".into(), rotated));
    shelf.succeed(id).await;
    shelf.assert_true().await;
    assert!(nginx.answered(401) > 0);

    shelf.api_key = Some("b3RoZXI6d3Jvbmc=".into());
    shelf.run(id).await;
    let told = "select error_code from etl.etl_attempts order by id desc limit 1";
    let told: String = shelf.stage.db.value(told).await;
    assert_eq!((shelf.stage.status(id).await, told.as_str()), (Status::RunRequested, "sink.login_refused"));
}

#[tokio::test]
async fn a_wrong_prefix_is_told_and_never_taken_for_an_empty_server() {
    let server = SearchServer::elasticsearch().await;
    let nginx = Nginx::before(&server).prefix("search").start().await;
    let shelf = Shelf::new(&server, 5).await.at(&nginx.url().replace("/search", "/elsewhere"));
    let id = shelf.full(10).await;
    let (code, message) = shelf.fail(id).await;
    assert_eq!(code, "sink.foreign_answer", "{message}");
    assert!(message.contains("url"), "{message}");
    shelf.wrote_nothing(id).await;
}

#[tokio::test]
async fn bulks_are_halved_until_the_proxy_takes_them_and_a_row_that_never_fits_is_a_reject() {
    let server = SearchServer::opensearch().await;
    let nginx = Nginx::before(&server).largest_body(20_000).start().await;
    let shelf = Shelf::new(&server, 500).await.at(nginx.url());
    // What can hardly be compressed.
    let title = "(select string_agg(md5(n::text), '') from generate_series(1, 2000) n)";
    shelf.stage.db.execute(&format!("update content.film set title = {title} where id = 77")).await;
    let id = shelf.pipeline(json!({"batch_size": 500, "reject_limit": 1})).await;
    let run = shelf.succeed(id).await;
    assert_eq!((run.rows_written, run.rows_rejected), (499, 1));
    assert_eq!(shelf.stage.rejects().await, [("row.too_large".to_owned(), "[\"77\"]".to_owned())]);
    assert!(nginx.answered(413) >= 3, "{}", nginx.answered(413));
    assert_eq!(shelf.documents().await.len(), 499);
}

#[tokio::test]
async fn a_proxy_without_its_server_gives_the_pipeline_back_which_goes_on_later() {
    let mut server = SearchServer::own_opensearch().await;
    let nginx = Nginx::before(&server).start().await;
    let shelf = Shelf::new(&server, 100).await.at(nginx.url());
    let id = shelf.full(20).await;
    server.kill();
    let (code, message) = shelf.given_back(id).await;
    assert_eq!(code, "sink.unavailable", "{message}");
    assert!(message.contains("502"), "{message}");
    server.start().await;
    let (mut runner, _stop) = shelf.stage.start(shelf.patient());
    shelf.hurry().await;
    shelf.stage.reaches(id, Status::Idle).await;
    runner.abort_all();
    shelf.assert_true().await;
}
