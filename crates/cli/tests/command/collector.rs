//! A receiver of traces, as OTLP over HTTP wants one.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::{Duration, Instant};

use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
use opentelemetry_proto::tonic::trace::v1::Span;
use prost_otlp::Message;

/// Takes what exporters send, as a collector does.
pub(super) struct Collector {
    pub(super) address: SocketAddr,
    received: Receiver<Vec<Span>>,
    spans: Vec<Span>,
}

impl Collector {
    pub(super) fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let (sender, received) = channel();
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let sender = sender.clone();
                std::thread::spawn(move || answer(stream.unwrap(), &sender));
            }
        });
        Self { address, received, spans: Vec::new() }
    }

    /// The span of this name in the trace, when it has come.
    pub(super) fn span(&mut self, trace: &str, name: &str) -> Span {
        self.hears(name, |span| hex(&span.trace_id) == trace)
    }

    /// In whichever trace that is like this.
    pub(super) fn hears(&mut self, name: &str, is_like: impl Fn(&Span) -> bool) -> Span {
        let deadline = Instant::now() + Duration::from_secs(30);
        loop {
            if let Some(span) = self.spans.iter().find(|span| span.name == name && is_like(span)) {
                return span.clone();
            }
            let left = deadline.saturating_duration_since(Instant::now());
            let names = || self.spans.iter().map(|span| span.name.clone()).collect::<Vec<_>>();
            self.spans
                .extend(self.received.recv_timeout(left).unwrap_or_else(|_| panic!("{name}: {:?}", names())));
        }
    }
}

/// Requests of one connection, until it is closed.
fn answer(mut stream: TcpStream, sender: &Sender<Vec<Span>>) {
    let mut reader = BufReader::new(stream.try_clone().unwrap());
    loop {
        let (mut length, mut line) = (0, String::new());
        while reader.read_line(&mut line).unwrap_or(0) > 2 {
            let (name, value) = line.split_once(':').unwrap_or_default();
            if name.eq_ignore_ascii_case("content-length") {
                length = value.trim().parse().unwrap();
            }
            line.clear();
        }
        if line.is_empty() {
            return;
        }
        let mut body = vec![0; length];
        reader.read_exact(&mut body).unwrap();
        let export = ExportTraceServiceRequest::decode(body.as_slice()).unwrap();
        let scopes = export.resource_spans.into_iter().flat_map(|resource| resource.scope_spans);
        sender.send(scopes.flat_map(|scope| scope.spans).collect()).unwrap();
        stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n").unwrap();
    }
}

pub(super) fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}
