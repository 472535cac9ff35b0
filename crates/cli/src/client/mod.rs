//! A client of the API, as the commands need it. Answers keep the document as it came, for `-o json`.

mod calls;

use std::borrow::Cow;
use std::fmt;
use std::net::IpAddr;
use std::path::Path;
use std::time::Duration;

use percent_encoding::percent_decode_str;
use reqwest::{Certificate, Method, RequestBuilder, StatusCode};
use secrecy::{ExposeSecret, SecretString};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::Value;
use url::{Host, Url};
use vitrina_api::documents::Page;

use crate::config::ApiSettings;
use crate::exit::Exit;
use crate::nearest::nearest;

pub(crate) use calls::StateWish;

const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// How long an answer may take beyond the time it was asked to wait.
const PATIENCE: Duration = Duration::from_secs(30);

/// The API ends a stream of events sooner by itself.
const LISTENING: Duration = Duration::from_secs(600);

pub(crate) const NO_SUCH_PIPELINE: &str = "pipeline.not_found";

#[derive(Debug, thiserror::Error)]
pub(crate) enum Error {
    #[error(
        "cannot reach the API at {url}: {reason}\n\
         hint: is `vitrina serve`, `up` or `demo` running? VITRINA_API_URL says where to look"
    )]
    Unreachable { url: Url, reason: String },
    #[error("{0}")]
    Refused(Problem),
    #[error("the API at {url} is not healthy: its meta-store is {meta_store}\nhint: see the API's log")]
    Unhealthy { url: Url, meta_store: Cow<'static, str> },
    #[error("{url} answers {status}, but not as Vitrina's API does\nhint: check VITRINA_API_URL")]
    Foreign { url: Url, status: StatusCode },
}

type Result<T, E = Error> = std::result::Result<T, E>;

/// RFC 9457, as the API fills it in.
#[derive(Debug, Deserialize)]
pub(crate) struct Problem {
    pub(crate) status: u16,
    #[serde(default)]
    pub(crate) code: String,
    pub(crate) detail: String,
    hint: Option<String>,
    #[serde(default)]
    pub(crate) errors: Vec<ProblemPart>,
    /// The name that was meant, perhaps, where there is none as it was typed.
    #[serde(skip)]
    near: Option<Box<str>>,
}

#[derive(Debug, Deserialize)]
pub(crate) struct ProblemPart {
    pub(crate) pointer: String,
    pub(crate) detail: String,
    hint: Option<String>,
}

impl Problem {
    fn no_such_pipeline(name: &str) -> Self {
        let (code, detail) = (NO_SUCH_PIPELINE.to_owned(), format!("there is no pipeline {name:?}"));
        Self { status: 404, code, detail, hint: None, errors: Vec::new(), near: None }
    }
}

/// What a hint of the API says as a call, said as a command.
fn command(code: &str) -> Option<&'static str> {
    Some(match code {
        NO_SUCH_PIPELINE => "`vitrina status` lists them",
        "connection.not_found" => "`vitrina conn list` lists them",
        "connection.not_a_source" => "`vitrina conn list` shows the schemas of those it reads from",
        "reconcile.not_found" => "`vitrina reconciles` lists them",
        "reconcile.not_done" => {
            "`vitrina reconciles` shows when it has ended; one that has failed or was cancelled is asked for again"
        }
        "reconcile.equal" => {
            "rows in flight come with the next run, and `vitrina rejects PIPELINE --retry` reads rejects again"
        }
        "rejects.none" => {
            "`vitrina rejects PIPELINE` lists those it has; one closes by itself when its key succeeds or leaves the source"
        }
        "runner.not_found" => "`vitrina runners` lists them",
        "source.unavailable" => "`vitrina conn test NAME` tells more",
        _ => return None,
    })
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.detail)?;
        for part in &self.errors {
            write!(f, "\n  {}: {}", part.pointer, part.detail)?;
        }
        let hint = match self.hint.as_deref() {
            hint @ Some(text) if text.contains("VITRINA_API_TOKEN") => hint,
            _ if self.status == 401 => Some("set VITRINA_API_TOKEN to a token of this API"),
            _ if command(&self.code).is_some() => command(&self.code),
            None => self.errors.first().and_then(|part| part.hint.as_deref()),
            hint => hint,
        };
        match (&self.near, hint) {
            (Some(near), Some(hint)) => write!(f, "\nhint: did you mean {near}? {hint}"),
            (None, Some(hint)) => write!(f, "\nhint: {hint}"),
            _ => Ok(()),
        }
    }
}

/// What the commands read of an answer, and all of it.
#[derive(Debug)]
pub(crate) struct Answer<T> {
    pub(crate) known: T,
    pub(crate) document: Value,
}

impl<T> Answer<Page<T>> {
    /// The page that follows.
    fn append(&mut self, mut page: Self) -> &mut Self {
        self.known.items.append(&mut page.known.items);
        self.known.next_cursor = page.known.next_cursor;
        if let (Some(items), Some(more)) =
            (self.document["items"].as_array_mut(), page.document["items"].as_array())
        {
            items.extend(more.iter().cloned());
        }
        self.document["next_cursor"] = page.document["next_cursor"].take();
        self
    }
}

#[derive(Debug)]
pub(crate) struct Client {
    http: reqwest::Client,
    base: Url,
    token: Option<SecretString>,
}

impl Client {
    pub(crate) fn new(settings: &ApiSettings) -> anyhow::Result<Self> {
        // Err only says that it has been installed before.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let mut http = reqwest::Client::builder().connect_timeout(CONNECT_TIMEOUT);
        if is_loopback(&settings.url) {
            http = http.no_proxy();
        }
        if let Some(ca) = &settings.ca {
            http = http.tls_certs_merge(certificates(ca)?);
        }
        Ok(Self { http: http.build()?, base: settings.url.clone(), token: settings.token.clone() })
    }

    pub(crate) fn base(&self) -> &Url {
        &self.base
    }

    /// A request about one pipeline. URLs have no way to write `.` and `..` as names, however encoded.
    fn about(&self, method: Method, pipeline: &str, what: &[&str]) -> Result<RequestBuilder> {
        if matches!(pipeline, "" | "." | "..") {
            return Err(Error::Refused(Problem::no_such_pipeline(pipeline)));
        }
        Ok(self.request(method, &[&["pipelines", pipeline], what].concat()))
    }

    fn request(&self, method: Method, path: &[&str]) -> RequestBuilder {
        let mut url = self.base.clone();
        if let Ok(mut segments) = url.path_segments_mut() {
            segments.pop_if_empty().extend(["api", "v1"]).extend(path);
        }
        let request = self.http.request(method, url).timeout(PATIENCE);
        match &self.token {
            Some(token) => request.bearer_auth(token.expose_secret()),
            None => request,
        }
    }

    async fn ask<T: DeserializeOwned>(&self, request: RequestBuilder) -> Result<Answer<T>> {
        let name = name_in(&request);
        let (status, document) = self.send(request).await?;
        if status.is_success() {
            return self.read(status, document);
        }
        let mut problem: Problem = self.read(status, document)?.known;
        if let (NO_SUCH_PIPELINE, Some(name)) = (problem.code.as_str(), name) {
            problem.near = Box::pin(self.pipeline_near(&name)).await;
        }
        Err(Error::Refused(problem))
    }

    /// Of those that are there.
    async fn pipeline_near(&self, name: &str) -> Option<Box<str>> {
        let pipelines = self.pipelines().await.ok()?.known.items;
        let names: Vec<String> = pipelines.into_iter().map(|pipeline| pipeline.name).collect();
        nearest(name, &names).map(Box::from)
    }

    async fn send(&self, request: RequestBuilder) -> Result<(StatusCode, Value)> {
        let response = request.send().await.map_err(|error| unreachable(&self.base, &error))?;
        let status = response.status();
        let body = response.bytes().await.map_err(|error| unreachable(&self.base, &error))?;
        Ok((status, serde_json::from_slice(&body).unwrap_or_default()))
    }

    /// An answer that is read as it comes.
    async fn stream(&self, request: RequestBuilder) -> Result<reqwest::Response> {
        let response = request.send().await.map_err(|error| unreachable(&self.base, &error))?;
        let status = response.status();
        if status.is_success() {
            return Ok(response);
        }
        let body = response.bytes().await.map_err(|error| unreachable(&self.base, &error))?;
        Err(Error::Refused(self.read(status, serde_json::from_slice(&body).unwrap_or_default())?.known))
    }

    /// Passes an answer on as it comes, until nobody takes it any more.
    async fn pass_on(&self, request: RequestBuilder, to: impl Fn(&[u8]) -> bool) -> Result<()> {
        let mut response = self.stream(request).await?;
        while let Some(bytes) = response.chunk().await.map_err(|error| unreachable(&self.base, &error))? {
            if !to(&bytes) {
                break;
            }
        }
        Ok(())
    }

    /// What happens, as it happens.
    pub(crate) async fn events(&self, topics: &str) -> Result<Events> {
        let request = self.request(Method::GET, &["events"]).query(&[("topics", topics)]);
        let response = self.stream(request.timeout(LISTENING)).await?;
        Ok(Events { response, base: self.base.clone() })
    }

    fn read<T: DeserializeOwned>(&self, status: StatusCode, document: Value) -> Result<Answer<T>> {
        match T::deserialize(&document) {
            Ok(known) => Ok(Answer { known, document }),
            Err(_) => Err(Error::Foreign { url: self.base.clone(), status }),
        }
    }
}

/// The pipeline that a request is about.
fn name_in(request: &RequestBuilder) -> Option<String> {
    let request = request.try_clone()?.build().ok()?;
    let mut segments = request.url().path_segments()?.skip_while(|part| *part != "pipelines").skip(1);
    Some(percent_decode_str(segments.next()?).decode_utf8().ok()?.into_owned())
}

/// A stream of server-sent events.
#[derive(Debug)]
pub(crate) struct Events {
    response: reqwest::Response,
    base: Url,
}

impl Events {
    /// Waits until something has happened; false where the API has ended the stream, as it does every few minutes.
    pub(crate) async fn next(&mut self) -> Result<bool> {
        loop {
            match self.response.chunk().await.map_err(|error| unreachable(&self.base, &error))? {
                // Anything else keeps the connection alive.
                Some(chunk) if chunk.windows(6).any(|bytes| bytes == b"event:") => return Ok(true),
                Some(_) => {}
                None => return Ok(false),
            }
        }
    }
}

/// With the innermost cause: "connection refused" says more than "error sending request".
fn unreachable(url: &Url, error: &reqwest::Error) -> Error {
    let outermost: &dyn std::error::Error = error;
    let causes = std::iter::successors(Some(outermost), |error| error.source());
    Error::Unreachable {
        url: url.clone(),
        reason: causes.last().map(ToString::to_string).unwrap_or_default(),
    }
}

fn certificates(file: &Path) -> anyhow::Result<Vec<Certificate>> {
    let unusable = |reason: &dyn fmt::Display| {
        Exit::Usage
            .fault(format!("{}: {reason}\nhint: api.ca is a PEM file with certificates", file.display()))
    };
    let pem = std::fs::read(file).map_err(|error| unusable(&error))?;
    let certificates = Certificate::from_pem_bundle(&pem).map_err(|error| unusable(&error))?;
    if certificates.is_empty() { Err(unusable(&"holds no certificate")) } else { Ok(certificates) }
}

/// A proxy would look for the API on its own machine.
pub(crate) fn is_loopback(url: &Url) -> bool {
    match url.host() {
        Some(Host::Domain(name)) => name == "localhost",
        Some(Host::Ipv4(ip)) => IpAddr::from(ip).is_loopback(),
        Some(Host::Ipv6(ip)) => ip.is_loopback(),
        None => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hints_of_the_api_name_commands_here_and_no_calls() {
        let said = |code: &str| {
            let problem = serde_json::json!({"status": 502, "code": code, "detail": "no", "hint": "POST /x tells more"});
            serde_json::from_value::<Problem>(problem).expect("a problem").to_string()
        };
        assert_eq!(said("source.unavailable"), "no\nhint: `vitrina conn test NAME` tells more");
        for code in ["connection.not_found", "reconcile.not_done", "reconcile.equal", "rejects.none"] {
            assert!(said(code).contains("hint: ") && !said(code).contains("POST "), "{code}");
        }
        assert_eq!(said("runner.waits"), "no\nhint: POST /x tells more", "others are told as they are");
    }
}
