//! A cuttable proxy before a Postgres server: it counts requests, and fails at the one that a test names.
//!
//! A request is what the server answers as a whole: the start of a session, a simple query, or the messages up to a
//! Sync. Its answer ends with ReadyForQuery; that to the first half of a COPY ends with CopyInResponse.

use std::collections::VecDeque;
use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard};

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWriteExt, copy_bidirectional};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;
use url::Url;

use crate::Fault;

const SSL_REQUEST: [u8; 4] = 80_877_103_u32.to_be_bytes();
const GSS_REQUEST: [u8; 4] = 80_877_104_u32.to_be_bytes();
const CANCEL_REQUEST: [u8; 4] = 80_877_102_u32.to_be_bytes();

#[derive(Debug)]
pub struct PostgresProxy {
    url: String,
    requests: Arc<Mutex<Requests>>,
    _serving: JoinSet<()>,
}

/// Of all connections.
#[derive(Debug, Default)]
struct Requests {
    count: usize,
    fault: Option<(usize, Fault)>,
}

/// What its unanswered requests meet, oldest first.
type Unanswered = Mutex<VecDeque<Fault>>;

impl PostgresProxy {
    /// Lets everything pass until it is told otherwise.
    pub async fn before(url: &str) -> Self {
        let mut url = Url::parse(url).expect("a server's URL");
        let server = url.socket_addrs(|| Some(5432)).expect("a server's address")[0];
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        url.set_host(Some("127.0.0.1")).expect("a host");
        url.set_port(Some(listener.local_addr().expect("the listener's address").port())).expect("a port");
        let requests = Arc::<Mutex<Requests>>::default();
        let mut serving = JoinSet::new();
        serving.spawn(accept(listener, server, Arc::clone(&requests)));
        Self { url: url.into(), requests, _serving: serving }
    }

    /// The URL of the same database through the proxy.
    pub fn url(&self) -> &str {
        &self.url
    }

    /// The `nth` request from now on meets this fault: `DropReply`, `Hold` or `HoldReply`. Forgets the one before.
    pub fn play_at(&self, nth: usize, fault: Fault) {
        *locked(&self.requests) = Requests { count: 0, fault: Some((nth, fault)) };
    }

    /// How many requests have come since then.
    pub fn requests(&self) -> usize {
        locked(&self.requests).count
    }
}

impl Requests {
    fn next(&mut self) -> Fault {
        self.count += 1;
        match self.fault.take_if(|(nth, _)| *nth == self.count) {
            Some((_, fault)) => fault,
            None => Fault::Pass,
        }
    }
}

async fn accept(listener: TcpListener, server: SocketAddr, requests: Arc<Mutex<Requests>>) {
    let mut sessions = JoinSet::new();
    while let Ok((client, _)) = listener.accept().await {
        let requests = Arc::clone(&requests);
        sessions.spawn(async move { serve(client, server, &requests).await.unwrap_or_default() });
        while sessions.try_join_next().is_some() {}
    }
}

/// Both ends are closed as soon as either is, or as a fault demands it.
async fn serve(mut client: TcpStream, server: SocketAddr, requests: &Mutex<Requests>) -> io::Result<()> {
    let mut server = TcpStream::connect(server).await?;
    // Small messages that wait for one another would cost 40 ms each.
    client.set_nodelay(true)?;
    server.set_nodelay(true)?;
    let Some(start) = start(&mut client, &mut server).await? else {
        return copy_bidirectional(&mut client, &mut server).await.map(drop);
    };
    let ((from_client, to_client), (from_server, to_server)) = (client.into_split(), server.into_split());
    let unanswered = Unanswered::default();
    tokio::select! {
        ended = ask(start, from_client, to_server, requests, &unanswered) => ended,
        ended = answer(from_server, to_client, &unanswered) => ended,
    }
}

/// The message that starts a session; `None` for what is none.
async fn start(client: &mut TcpStream, server: &mut TcpStream) -> io::Result<Option<Vec<u8>>> {
    loop {
        let message = rest_of(client, Vec::new()).await?;
        match message.get(4..8) {
            Some(code) if code == SSL_REQUEST || code == GSS_REQUEST => {
                server.write_all(&message).await?;
                let said = server.read_u8().await?;
                client.write_u8(said).await?;
                if said != b'N' {
                    return Ok(None);
                }
            }
            Some(code) if code == CANCEL_REQUEST => {
                server.write_all(&message).await?;
                return Ok(None);
            }
            _ => return Ok(Some(message)),
        }
    }
}

async fn ask(
    start: Vec<u8>,
    mut client: OwnedReadHalf,
    mut server: OwnedWriteHalf,
    requests: &Mutex<Requests>,
    unanswered: &Unanswered,
) -> io::Result<()> {
    let mut request = start;
    let mut is_whole = true;
    loop {
        if is_whole {
            let fault = locked(requests).next();
            locked(unanswered).push_back(fault.clone());
            pass(&request, &mut server, fault).await?;
            request.clear();
        }
        let message = message(&mut client).await?;
        is_whole = matches!(message[0], b'Q' | b'S');
        match message[0] {
            // Rows of a COPY, passwords and the end belong to no request.
            b'd' | b'p' | b'X' => server.write_all(&message).await?,
            _ => request.extend(message),
        }
    }
}

async fn pass(request: &[u8], server: &mut OwnedWriteHalf, fault: Fault) -> io::Result<()> {
    let Fault::Hold(gate) = fault else { return server.write_all(request).await };
    gate.enter().await;
    let passed = server.write_all(request).await;
    gate.leave();
    passed
}

async fn answer(
    mut server: OwnedReadHalf,
    mut client: OwnedWriteHalf,
    unanswered: &Unanswered,
) -> io::Result<()> {
    let mut held = Vec::new();
    loop {
        let message = message(&mut server).await?;
        let is_end = matches!(message[0], b'Z' | b'G');
        let fault = match (is_end, locked(unanswered)) {
            (true, mut unanswered) => unanswered.pop_front(),
            (false, unanswered) => unanswered.front().cloned(),
        };
        match fault {
            // Whoever may come in is told so, as the client has to answer that.
            _ if message[0] == b'R' => client.write_all(&message).await?,
            Some(Fault::DropReply) if is_end => return Ok(()),
            Some(Fault::DropReply) => {}
            Some(Fault::HoldReply(gate)) => {
                held.extend(message);
                if is_end {
                    gate.enter().await;
                    client.write_all(&std::mem::take(&mut held)).await?;
                    gate.leave();
                }
            }
            _ => client.write_all(&message).await?,
        }
    }
}

/// A message with its type, which is its first byte.
async fn message(from: &mut (impl AsyncRead + Unpin)) -> io::Result<Vec<u8>> {
    let kind = from.read_u8().await?;
    rest_of(from, vec![kind]).await
}

/// The length, which counts itself, and what follows it.
async fn rest_of(from: &mut (impl AsyncRead + Unpin), mut message: Vec<u8>) -> io::Result<Vec<u8>> {
    let length = from.read_u32().await?;
    message.extend(length.to_be_bytes());
    let begun = message.len();
    message.resize(begun + length.saturating_sub(4) as usize, 0);
    from.read_exact(&mut message[begun..]).await?;
    Ok(message)
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().expect("no holder panics")
}
