//! What tests ask of a search server.

use std::time::Duration;

use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use reqwest::Method;
use serde_json::Value;

use super::SearchServer;

/// A server that is frozen answers nobody: a test that asks it shall fail, not hang.
const PATIENCE: Duration = Duration::from_secs(60);

impl SearchServer {
    /// Any call; `Value::Null` is no body, and an answer that is not JSON is a text.
    pub async fn call(&self, method: &str, path: &str, body: Value) -> (u16, Value) {
        let answer = self.try_call(method, path, body).await;
        answer.unwrap_or_else(|error| panic!("{method} {path}: {error:?}"))
    }

    /// The same, where no answer is one of the answers.
    pub async fn try_call(&self, method: &str, path: &str, body: Value) -> reqwest::Result<(u16, Value)> {
        let request = self.request(method, path);
        let request = if body.is_null() { request } else { request.json(&body) };
        answer(request).await
    }

    /// What a GET yields that must succeed.
    pub async fn get(&self, path: &str) -> Value {
        self.expect("GET", path, Value::Null).await
    }

    /// A `_bulk` of these lines, actions and documents, at any path that ends with it. Items may have failed.
    pub async fn bulk(&self, path: &str, lines: &[Value]) -> Value {
        let answer = self.try_bulk(path, lines).await;
        let (status, answer) = answer.unwrap_or_else(|error| panic!("POST {path}: {error:?}"));
        assert_eq!(status, 200, "POST {path}: {answer}");
        answer
    }

    pub async fn try_bulk(&self, path: &str, lines: &[Value]) -> reqwest::Result<(u16, Value)> {
        let body: String = lines.iter().map(|line| format!("{line}\n")).collect();
        let request = self.request("POST", path).header("content-type", "application/x-ndjson");
        answer(request.body(body)).await
    }

    /// How many documents a search would see.
    pub async fn count(&self, index: &str) -> u64 {
        self.get(&format!("{index}/_count")).await["count"].as_u64().expect("a count")
    }

    pub async fn search(&self, index: &str, body: Value) -> Value {
        self.expect("POST", &format!("{index}/_search"), body).await
    }

    /// A document with its `_source`, `_version` and so on, as it is at this moment.
    pub async fn document(&self, index: &str, id: &str) -> Option<Value> {
        let path = format!("{index}/_doc/{}", utf8_percent_encode(id, NON_ALPHANUMERIC));
        let (status, answer) = self.call("GET", &path, Value::Null).await;
        // That there is no such index is also a 404.
        assert!(answer["found"].is_boolean(), "GET {path}: {status} {answer}");
        (status == 200).then_some(answer)
    }

    /// Lets searches see what was written.
    pub async fn refresh(&self, index: &str) {
        self.expect("POST", &format!("{index}/_refresh"), Value::Null).await;
    }

    /// Waits until all indexes can be read and written, as they cannot for a moment after a start.
    pub async fn settled(&self) {
        let health = self.get("_cluster/health?wait_for_status=yellow&timeout=50s").await;
        assert_eq!(health["timed_out"], false, "{health}");
    }

    async fn expect(&self, method: &str, path: &str, body: Value) -> Value {
        let (status, answer) = self.call(method, path, body).await;
        assert!((200..300).contains(&status), "{method} {path}: {status} {answer}");
        answer
    }

    fn request(&self, method: &str, path: &str) -> reqwest::RequestBuilder {
        let method = Method::from_bytes(method.as_bytes()).expect("a method of HTTP");
        let url = format!("{}/{}", self.url(), path.trim_start_matches('/'));
        self.http.request(method, url).timeout(PATIENCE)
    }
}

async fn answer(request: reqwest::RequestBuilder) -> reqwest::Result<(u16, Value)> {
    let answer = request.send().await?;
    let status = answer.status().as_u16();
    let text = answer.text().await?;
    Ok((status, serde_json::from_str(&text).unwrap_or(Value::String(text))))
}
