//! The search server as the demo asks it: JSON over HTTP, with the user and password of the URL.

use std::time::Duration;

use anyhow::Result;
use reqwest::{Method, StatusCode};
use serde_json::Value;
use url::Url;

use crate::client::is_loopback;
use crate::config;
use crate::exit::Exit;

/// As the connection `search` is called in the environment.
const VARIABLES: [&str; 2] = ["ELASTICSEARCH_URL", "OPENSEARCH_URL"];
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
const PATIENCE: Duration = Duration::from_secs(60);

#[derive(Debug)]
pub(crate) struct Server {
    http: reqwest::Client,
    /// Of the first node; with user and password, if there are any.
    url: Url,
    variable: &'static str,
    written: String,
    version: String,
}

impl Server {
    /// `None` where neither variable is set. Both would be two servers, and no index is in two.
    pub(super) fn named() -> Result<Option<Self>> {
        let set = |name: &&str| std::env::var(name).ok().filter(|value| !value.trim().is_empty());
        let found: Vec<_> = VARIABLES.iter().filter_map(|name| Some((*name, set(name)?))).collect();
        match found.as_slice() {
            [] => Ok(None),
            [(variable, written)] => Self::at(variable, written).map(Some),
            _ => Err(Exit::Usage
                .fault("ELASTICSEARCH_URL and OPENSEARCH_URL are both set\nhint: leave one of them out")),
        }
    }

    pub(super) fn at(variable: &'static str, written: &str) -> Result<Self> {
        let first = written.split(',').map(str::trim).find(|url| !url.is_empty()).unwrap_or_default();
        let url = Url::parse(first).ok().filter(|url| matches!(url.scheme(), "http" | "https"));
        let url = url.filter(|_| config::connection_url(written).is_ok());
        let url = url.ok_or_else(|| {
            Exit::Usage.fault(format!(
                "{variable} is no URL of a search server\nhint: {variable}=http://127.0.0.1:9200"
            ))
        })?;
        // Err only says that it has been installed before.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let mut http = reqwest::Client::builder().connect_timeout(CONNECT_TIMEOUT).timeout(PATIENCE);
        if is_loopback(&url) {
            http = http.no_proxy();
        }
        let (http, written, version) = (http.build()?, written.to_owned(), String::new());
        Ok(Self { http, url, variable, written, version })
    }

    /// Asks who is there: a run into a server that is away would wait for it, and the demo with it.
    pub(super) async fn look(self) -> Result<Self> {
        let told = self.call(Method::GET, &[""], None).await.map(|(_, told)| told).unwrap_or_default();
        let Some(number) = told["version"]["number"].as_str() else {
            return Err(Exit::Refused.fault(format!(
                "no search server answers at {}, which {} names\n\
                 hint: start one with `scripts/search run opensearch 9200`, or unset {}",
                self.shown(),
                self.variable,
                self.variable
            )));
        };
        let is_opensearch = told["version"]["distribution"] == "opensearch";
        let version = format!("{} {number}", if is_opensearch { "OpenSearch" } else { "Elasticsearch" });
        Ok(Self { version, ..self })
    }

    /// The variable that gives services the connection `search`.
    pub(crate) fn variable(&self) -> (String, String) {
        (self.variable.to_owned(), self.written.clone())
    }

    pub(super) fn written(&self) -> &str {
        &self.written
    }

    pub(super) fn described(&self) -> String {
        format!("{} at {}, for three indexes", self.version, self.shown())
    }

    /// Without user and password.
    pub(crate) fn shown(&self) -> String {
        let mut url = self.url.clone();
        let _ = (url.set_username(""), url.set_password(None));
        url.as_str().trim_end_matches('/').to_owned()
    }

    /// As a visitor types it: whoever needs a password has it in the variable.
    pub(crate) fn typed(&self) -> String {
        if self.url.username().is_empty() { self.shown() } else { format!("${}", self.variable) }
    }

    /// The last of `path` may end with a query.
    pub(super) async fn call(
        &self,
        method: Method,
        path: &[&str],
        body: Option<&Value>,
    ) -> Result<(StatusCode, Value)> {
        let url = format!("{}/{}", self.url.as_str().trim_end_matches('/'), path.join("/"));
        let request = self.http.request(method, url);
        let request = if let Some(body) = body { request.json(body) } else { request };
        let answer = request.send().await.map_err(reqwest::Error::without_url)?;
        let status = answer.status();
        let body = answer.bytes().await.map_err(reqwest::Error::without_url)?;
        Ok((status, serde_json::from_slice(&body).unwrap_or_default()))
    }

    /// Errs where the server does not do as it is told.
    pub(super) async fn ask(&self, method: Method, path: &[&str], body: Option<&Value>) -> Result<Value> {
        let (status, told) = self.call(method, path, body).await?;
        if status.is_success() {
            return Ok(told);
        }
        let kind = told["error"]["type"].as_str().unwrap_or("no reason");
        Err(Exit::Failed.fault(format!("the search server answers {status}: {kind}")))
    }
}
