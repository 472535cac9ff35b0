//! A reverse proxy before a search server that does to requests what a test tells it to: the faults of networks,
//! balancers and servers under load, each at the request where it hurts.

mod bulk;
mod fault;
mod forward;
mod gate;
mod stage;
mod storm;

use std::sync::Arc;

use bytes::Bytes;
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Request, Response};
use hyper_util::rt::TokioIo;
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;

pub use fault::Fault;
pub use gate::Gate;
pub use storm::Storm;

use crate::SearchServer;
use fault::Dropped;
use forward::Call;
use stage::Stage;

#[derive(Debug)]
pub struct FaultProxy {
    url: String,
    stage: Arc<Stage>,
    _serving: JoinSet<()>,
}

impl FaultProxy {
    /// Lets everything pass until it is told otherwise.
    pub async fn before(server: &SearchServer) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        let url = format!("http://{}", listener.local_addr().expect("the listener's address"));
        let stage = Arc::new(Stage::before(server));
        let mut serving = JoinSet::new();
        serving.spawn(serve(listener, Arc::clone(&stage)));
        Self { url, stage, _serving: serving }
    }

    /// Without a slash at its end.
    pub fn url(&self) -> &str {
        &self.url
    }

    /// The server as one sees it through the proxy.
    pub fn server(&self) -> SearchServer {
        self.stage.server().seen_at(&self.url)
    }

    /// The next `times` requests that have `part` in their method and path, as in `PUT /films?timeout=5s`, meet this
    /// fault. Of several rules the one given first acts, until it is used up.
    pub fn play(&self, times: usize, part: &str, fault: Fault) {
        self.stage.add_rule(times, part, fault);
    }

    /// The `nth` request from now on meets this fault, whatever it is for. Forgets all other rules.
    pub fn play_at(&self, nth: usize, fault: Fault) {
        self.stage.replace_rules(nth, fault);
    }

    /// How many requests have come since then.
    pub fn requests(&self) -> usize {
        self.stage.requests()
    }

    /// From now on every request that has `text` in its body breaks its connection, as where a filter before the server
    /// takes it for an attack.
    pub fn break_on(&self, text: &str) {
        self.stage.add_unbearable(text);
    }

    /// From now on requests that no rule is for meet random faults.
    pub fn storm(&self, storm: Storm) {
        self.stage.begin_storm(storm);
    }

    /// Ends the storm, and waits until all that it has delayed has passed.
    pub async fn calm(&self) {
        self.stage.end_storm().await;
    }

    /// Method and path of what reached the server, in the order of its answers; duplicates are there twice.
    pub fn passed(&self) -> Vec<String> {
        self.stage.passed()
    }

    /// How many of these hold `part`.
    pub fn count_passed(&self, part: &str) -> usize {
        self.passed().iter().filter(|request| request.contains(part)).count()
    }
}

impl Drop for FaultProxy {
    /// Its tasks hold the stage, and the stage holds its tasks.
    fn drop(&mut self) {
        self.stage.abort();
    }
}

async fn serve(listener: TcpListener, stage: Arc<Stage>) {
    let mut connections = JoinSet::new();
    while let Ok((caller, _)) = listener.accept().await {
        connections.spawn(serve_connection(caller, Arc::clone(&stage)));
        while connections.try_join_next().is_some() {}
    }
}

async fn serve_connection(caller: TcpStream, stage: Arc<Stage>) {
    let answer = service_fn(|request| answer(request, Arc::clone(&stage)));
    // An error is how a connection is closed without an answer.
    http1::Builder::new().serve_connection(TokioIo::new(caller), answer).await.ok();
}

/// The work is the stage's, not the connection's: a request goes on when its caller has gone.
async fn answer(request: Request<Incoming>, stage: Arc<Stage>) -> Result<Response<Full<Bytes>>, Dropped> {
    let call = Call::read(request).await?;
    stage.perform(call).await.map_err(|_| Dropped)?
}
