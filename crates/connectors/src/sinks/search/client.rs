//! One thin client for Elasticsearch and OpenSearch: JSON over HTTP, and no call that only one of them has.
//!
//! A node that cannot be reached is passed over. Every other answer, and the lack of one, is the caller's to judge.

use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError, RwLock};
use std::time::{Duration, Instant};

use bytes::Bytes;
use reqwest::header::{AUTHORIZATION, CONTENT_ENCODING, CONTENT_TYPE, HeaderValue};
use reqwest::redirect::Policy;
use reqwest::{Certificate, Method, RequestBuilder, StatusCode};
use secrecy::{ExposeSecret, SecretString};
use serde::de::DeserializeOwned;
use serde_json::Value;
use url::Url;
use vitrina_core::{Error, Remedy, Result};
use vitrina_guard::Secret;

use super::address::{Address, Login};
use super::fault::{self, Fault};
use super::lost;
use super::made::Known;
use crate::Connection;

const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
/// For an answer to anything but a bulk.
const PATIENCE: Duration = Duration::from_secs(60);
/// Waits before a call that changes nothing by being repeated is made again.
const AGAIN: [Duration; 4] =
    [Duration::from_millis(100), Duration::from_millis(400), Duration::from_secs(1), Duration::from_secs(2)];
const NDJSON: HeaderValue = HeaderValue::from_static("application/x-ndjson");
const JSON: HeaderValue = HeaderValue::from_static("application/json");
const GZIP: HeaderValue = HeaderValue::from_static("gzip");

pub(crate) struct Client {
    http: reqwest::Client,
    nodes: Vec<Url>,
    login: RwLock<Login>,
    /// Where the login is read again.
    origin: Connection,
    connection: String,
    /// The node that answered last.
    node: AtomicUsize,
    /// When it did.
    heard: Mutex<Instant>,
    pub(super) bulk_patience: BulkPatience,
    /// How large a bulk may be by now.
    pub(super) bulk_bytes: AtomicUsize,
    /// A way through a network is slower than packing; one within this machine is not.
    pub(super) compresses: bool,
    /// What is known of indexes that were written to.
    pub(super) known: Known,
    /// The index that closed write aliases are moved to is there.
    pub(super) can_close: AtomicBool,
}

impl fmt::Debug for Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Client").field("connection", &self.connection).finish_non_exhaustive()
    }
}

/// How long a server may take for bulks.
#[derive(Debug, Clone, Copy)]
pub(super) struct BulkPatience {
    /// A busy one for an answer.
    pub(super) answer: Duration,
    /// One that says nothing at all, whatever it is asked.
    pub(super) silence: Duration,
}

impl Default for BulkPatience {
    fn default() -> Self {
        Self { answer: Duration::from_secs(180), silence: Duration::from_secs(300) }
    }
}

/// What a server has said.
#[derive(Debug)]
pub(super) struct Reply {
    pub(super) status: StatusCode,
    pub(super) body: Bytes,
}

/// The body of a bulk, as it travels.
#[derive(Debug, Clone)]
pub(super) struct Packed {
    pub(super) bytes: Bytes,
    pub(super) gzip: bool,
}

impl Client {
    /// The client of this connection; all runs of a process share it.
    pub(super) fn of(connection: &Connection) -> Result<Arc<Self>> {
        if let Some(client) = connection.search.get() {
            return Ok(Arc::clone(client));
        }
        let client = Arc::new(Self::new(connection)?);
        Ok(Arc::clone(connection.search.get_or_init(|| client)))
    }

    pub(super) fn new(connection: &Connection) -> Result<Self> {
        // Err only says that it has been installed before.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let address = Address::of(connection)?;
        let mut http = reqwest::Client::builder()
            .connect_timeout(CONNECT_TIMEOUT)
            // Whoever answers with another place gets neither the rows nor the login sent there.
            .redirect(Policy::none())
            .tcp_keepalive(Duration::from_secs(30))
            .tcp_nodelay(true);
        if address.is_local() {
            http = http.no_proxy();
        }
        if connection.ca.is_some() {
            http = http.tls_certs_merge(certificates(connection)?);
        }
        let unusable = |error: reqwest::Error| {
            Error::fix("connection.tls", format!("connection {:?} cannot be set up", connection.name))
                .caused_by(error)
        };
        Ok(Self {
            http: http.build().map_err(unusable)?,
            compresses: !address.is_local(),
            nodes: address.nodes,
            login: RwLock::new(address.login),
            // Without what it knows, which is this client.
            origin: connection.afresh(),
            connection: connection.name.clone(),
            node: AtomicUsize::new(0),
            heard: Mutex::new(Instant::now()),
            bulk_patience: BulkPatience::default(),
            bulk_bytes: AtomicUsize::new(super::bulk::LARGEST),
            known: Known::default(),
            can_close: AtomicBool::new(false),
        })
    }

    /// Of its connection.
    pub(super) fn name(&self) -> &str {
        &self.connection
    }

    /// Nothing has been heard of the server for so long.
    pub(super) fn silence(&self) -> Duration {
        self.heard.lock().unwrap_or_else(PoisonError::into_inner).elapsed()
    }

    /// Reads, or does what is as good done twice: made again while the server is busy or does not answer.
    pub(super) async fn call(&self, method: Method, path: &str, body: Option<&Value>) -> Result<Reply> {
        let mut waits = AGAIN.into_iter();
        loop {
            let answer = self.once(method.clone(), path, body).await;
            let passing = match &answer {
                Ok(reply) => reply.fault().is_some_and(|fault| fault.passes()),
                Err(error) => error.remedy == Remedy::Release,
            };
            match waits.next() {
                Some(wait) if passing => tokio::time::sleep(wait).await,
                None if passing => {
                    return Err(given_up(answer.map_or_else(|lost| lost, |reply| self.explain(&reply))));
                }
                _ => return answer,
            }
        }
    }

    /// Asked once: who calls knows what a lost answer means.
    pub(super) async fn once(&self, method: Method, path: &str, body: Option<&Value>) -> Result<Reply> {
        let body = body.map(|body| Bytes::from(body.to_string()));
        self.send(PATIENCE, |client| {
            let request = client.request(&method, path);
            match &body {
                Some(body) => request.header(CONTENT_TYPE, JSON).body(body.clone()),
                None => request,
            }
        })
        .await
    }

    /// Who is there? Whoever asks does not wait for long.
    pub(super) async fn hello(&self) -> Result<Reply> {
        self.send(CONNECT_TIMEOUT, |client| client.request(&Method::GET, "")).await
    }

    pub(super) async fn bulk(&self, path: &str, body: &Packed) -> Result<Reply> {
        self.send(self.bulk_patience.answer, |client| {
            let request = client.request(&Method::POST, path).header(CONTENT_TYPE, NDJSON);
            let request = if body.gzip { request.header(CONTENT_ENCODING, GZIP) } else { request };
            request.body(body.bytes.clone())
        })
        .await
    }

    fn request(&self, method: &Method, path: &str) -> RequestBuilder {
        let node = &self.nodes[self.node.load(Ordering::Relaxed) % self.nodes.len()];
        let request = self.http.request(method.clone(), format!("{node}{path}"));
        match &*self.login.read().unwrap_or_else(PoisonError::into_inner) {
            Login::Key(key) => request.header(AUTHORIZATION, key),
            Login::User(user, password) => request.basic_auth(user, Some(password.expose_secret())),
            Login::Nobody => request,
        }
    }

    /// A login that was rotated is read again where it came from. A server that refuses it has done nothing.
    async fn send(&self, patience: Duration, request: impl Fn(&Self) -> RequestBuilder) -> Result<Reply> {
        let login = (self.origin.url.get(), self.origin.api_key.as_ref().map(Secret::get));
        let reply = self.reach(patience, &request).await?;
        if reply.status == StatusCode::UNAUTHORIZED && self.read_login_again(login).await {
            return self.reach(patience, &request).await;
        }
        Ok(reply)
    }

    /// Whether it is another one than this.
    async fn read_login_again(&self, (url, key): (SecretString, Option<SecretString>)) -> bool {
        let changed = match (&self.origin.api_key, key) {
            (Some(known), Some(key)) => known.read_again(&key).await,
            _ => self.origin.url.read_again(&url).await,
        };
        if let (true, Ok(address)) = (changed, Address::of(&self.origin)) {
            *self.login.write().unwrap_or_else(PoisonError::into_inner) = address.login;
        }
        changed
    }

    /// To the node that answered last, then to the others: one that was not reached has done nothing. Where a node breaks
    /// off, or stands in for nobody, whoever asks again asks the next.
    async fn reach(&self, patience: Duration, request: &impl Fn(&Self) -> RequestBuilder) -> Result<Reply> {
        let mut tried = 1;
        loop {
            let node = self.node.load(Ordering::Relaxed);
            let answer = self.answer(request(self).timeout(patience)).await;
            if answer.as_ref().map_or(true, Reply::is_of_nobody) {
                self.pass_over(node);
            }
            match answer {
                Err(error) if error.is_connect() && tried < self.nodes.len() => tried += 1,
                Err(error) => return Err(lost::explain(&self.connection, error)),
                Ok(reply) if reply.is_foreign() => return Err(foreign(&self.connection)),
                Ok(reply) => return Ok(reply),
            }
        }
    }

    /// Once, though several were asked for something at the same time.
    fn pass_over(&self, node: usize) {
        let next = node.wrapping_add(1);
        let _ = self.node.compare_exchange(node, next, Ordering::Relaxed, Ordering::Relaxed);
    }

    async fn answer(&self, request: RequestBuilder) -> Result<Reply, reqwest::Error> {
        let (client, request) = request.build_split();
        let request = request?;
        let (method, path, started) =
            (request.method().clone(), request.url().path().to_owned(), Instant::now());
        let answer = client.execute(request).await?;
        let status = answer.status();
        let reply = Reply { status, body: answer.bytes().await? };
        *self.heard.lock().unwrap_or_else(PoisonError::into_inner) = Instant::now();
        tracing::debug!(%method, path, %status, took = ?started.elapsed(), "the search server has answered");
        Ok(reply)
    }

    /// What a refusal means for the run.
    pub(super) fn stop(&self, fault: Fault) -> Error {
        fault.into_error(&self.connection)
    }

    /// What this says of the run, in the words of this connection.
    pub(super) fn explain(&self, reply: &Reply) -> Error {
        match reply.fault() {
            Some(fault) => fault.into_error(&self.connection),
            None => Error::bug(
                "sink.answer",
                format!("the search server {:?} answers {}", self.connection, reply.status),
            ),
        }
    }

    /// The document that a call answers, where it has gone well.
    pub(super) async fn get<T: DeserializeOwned>(
        &self,
        method: Method,
        path: &str,
        body: Option<&Value>,
    ) -> Result<T> {
        let reply = self.call(method, path, body).await?;
        self.read(&reply)
    }

    /// The same, `None` where nothing is there.
    pub(super) async fn find<T: DeserializeOwned>(&self, path: &str) -> Result<Option<T>> {
        let reply = self.call(Method::GET, path, None).await?;
        if reply.status == StatusCode::NOT_FOUND {
            return Ok(None);
        }
        self.read(&reply).map(Some)
    }

    pub(super) fn read<T: DeserializeOwned>(&self, reply: &Reply) -> Result<T> {
        if !reply.status.is_success() {
            return Err(self.explain(reply));
        }
        serde_json::from_slice(&reply.body).map_err(|error| foreign(&self.connection).caused_by(error))
    }
}

/// It answers, but not as a search server does.
pub(super) fn foreign(connection: &str) -> Error {
    Error::fix(
        "sink.foreign_answer",
        format!("what answers at the search connection {connection:?} speaks another language"),
    )
    .hint("check its url and the path in it: they should lead to Elasticsearch or OpenSearch")
}

impl Reply {
    /// `None` where the call has gone well.
    pub(super) fn fault(&self) -> Option<Fault> {
        (!self.status.is_success()).then(|| fault::of_answer(self.status, &self.body))
    }

    /// A proxy without its server, or a server that is not there yet.
    fn is_of_nobody(&self) -> bool {
        matches!(self.status.as_u16(), 502..=504)
    }

    /// A proxy that knows no such path must not be taken for a server without such an index. HEAD has no body.
    fn is_foreign(&self) -> bool {
        self.status == StatusCode::NOT_FOUND && self.body.first().is_some_and(|byte| *byte != b'{')
    }
}

/// It may pass, and not soon: the pipeline is given back meanwhile.
pub(super) fn given_up(lost: Error) -> Error {
    match lost.remedy {
        Remedy::Retry => Error::release("sink.unavailable", lost.to_string()),
        _ => lost,
    }
}

fn certificates(connection: &Connection) -> Result<Vec<Certificate>> {
    let Some(path) = &connection.ca else { return Ok(Vec::new()) };
    let unreadable = |reason: String| {
        Error::fix(
            "connection.ca",
            format!("the certificates of connection {:?} cannot be read: {reason}", connection.name),
        )
        .hint(format!("{} should hold certificates in PEM form", path.display()))
    };
    let pem = std::fs::read(path).map_err(|error| unreadable(error.to_string()))?;
    let found = Certificate::from_pem_bundle(&pem).map_err(|error| unreadable(error.to_string()))?;
    if found.is_empty() { Err(unreadable("there is none in it".to_owned())) } else { Ok(found) }
}
