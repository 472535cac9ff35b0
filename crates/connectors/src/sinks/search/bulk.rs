//! Bulks: operations by the bytes they take, each item judged by itself. What may pass is sent
//! again as it was, later and in smaller parts; versions make that safe.

use std::io::Write;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use bytes::Bytes;
use flate2::Compression;
use flate2::write::GzEncoder;
use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use serde::Deserialize;
use vitrina_core::{Error, Remedy, Result};

use super::client::{Client, Packed, given_up};
use super::fault::{Fault, Judgement};
use super::operations::{Action, Operations};

/// What both servers like best lies below.
pub(super) const LARGEST: usize = 8 << 20;
const SMALLEST: usize = 64 << 10;
/// Less than this travels as it is, wherever it goes.
const WORTH_COMPRESSING: usize = 16 << 10;
/// Waits before what was refused for now is sent again; progress starts them anew.
const WAITS: [u64; 11] = [50, 100, 200, 400, 800, 1600, 3000, 5000, 8000, 12_000, 20_000];
/// Times that the connection may break with the same operations, while the server answers other calls, before they are
/// divided; and with a single one before its row is rejected.
const BREAKS: usize = 3;
const BREAKS_ALONE: usize = 6;
/// Only what is looked at; the answer to a bulk may else be as long as the bulk.
const ANSWER: &str = "filter_path=errors,items.*.status,items.index.result,items.*.error.type,items.*.error.reason,items.*.error.caused_by.type,items.delete._index";

/// What became of operations.
#[derive(Debug, Default)]
pub(super) struct Sent {
    pub(super) created: u64,
    pub(super) updated: u64,
    /// Documents, or of those that others write to as well, all that is this pipeline's.
    pub(super) deleted: u64,
    /// Rows that the index refuses.
    pub(super) refused: Vec<(usize, Fault)>,
    /// Places of operations that found a version in their way, and which, where the server tells.
    pub(super) conflicts: Vec<(usize, Option<i64>)>,
}

impl Sent {
    fn and(mut self, other: Self) -> Self {
        self.created += other.created;
        self.updated += other.updated;
        self.deleted += other.deleted;
        self.refused.extend(other.refused);
        self.conflicts.extend(other.conflicts);
        self
    }
}

/// Where operations are sent through.
#[derive(Debug)]
pub(super) struct Bulk<'a> {
    pub(super) client: &'a Client,
    /// An alias: whoever has lost it writes no more.
    pub(super) door: &'a str,
}

#[derive(Deserialize)]
struct Answer {
    #[serde(default)]
    items: Vec<Item>,
}

#[derive(Deserialize)]
struct Item {
    #[serde(alias = "index", alias = "delete", alias = "update", alias = "create")]
    done: Done,
}

#[derive(Deserialize)]
struct Done {
    status: u16,
    /// Told of whole documents.
    result: Option<String>,
    /// Told of deletes.
    #[serde(rename = "_index")]
    index: Option<String>,
    error: Option<Fault>,
}

/// Operations that were refused for now.
#[derive(Debug, Default)]
struct Again {
    places: Vec<usize>,
    /// What was said of one of them.
    why: Option<Fault>,
}

/// A part of the operations on its way.
struct Part<'a> {
    door: &'a str,
    operations: &'a Operations,
    body: &'a Bytes,
    began: Instant,
}

impl Bulk<'_> {
    pub(super) async fn send(&self, mut operations: Operations) -> Result<(Operations, Sent)> {
        let body = Bytes::from(std::mem::take(&mut operations.body));
        let part = Part { door: self.door, operations: &operations, body: &body, began: Instant::now() };
        let mut sent = Sent::default();
        for places in part.split((0..operations.list.len()).collect(), self.limit()) {
            sent = sent.and(self.part(&part, places).await?);
        }
        Ok((operations, sent))
    }

    fn limit(&self) -> usize {
        self.client.bulk_bytes.load(Ordering::Relaxed)
    }

    fn shrink(&self) {
        self.client.bulk_bytes.store((self.limit() / 2).max(SMALLEST), Ordering::Relaxed);
    }

    fn grow(&self) {
        let limit = self.limit();
        if limit < LARGEST {
            self.client.bulk_bytes.store((limit + limit / 8).min(LARGEST), Ordering::Relaxed);
        }
    }

    fn part<'b>(&'b self, part: &'b Part<'b>, places: Vec<usize>) -> BoxFuture<'b, Result<Sent>> {
        self.until_done(part, places).boxed()
    }

    /// Sends these operations until each has its answer.
    async fn until_done(&self, part: &Part<'_>, mut pending: Vec<usize>) -> Result<Sent> {
        let path = format!("{}/_bulk?require_alias=true&{ANSWER}", self.door);
        let (mut sent, mut waits, mut breaks) = (Sent::default(), WAITS.into_iter(), 0);
        loop {
            let body = part.pack(&pending, self.client.compresses);
            let begun = Instant::now();
            let lost = match self.client.bulk(&path, &body).await {
                Err(lost) if lost.remedy == Remedy::Release => {
                    breaks = if self.is_broken(begun).await { breaks + 1 } else { 0 };
                    if breaks == if pending.len() > 1 { BREAKS } else { BREAKS_ALONE } {
                        return Ok(sent.and(self.halves(part, pending, Fault::breaks_connection()).await?));
                    }
                    lost
                }
                Err(mistake) => return Err(mistake),
                Ok(reply) => match reply.fault() {
                    None => {
                        let before = pending.len();
                        let answer: Answer = self.client.read(&reply)?;
                        let again = part.judge(&pending, answer, &mut sent);
                        let again = again.map_err(|fault| self.client.stop(fault))?;
                        pending = again.places;
                        if pending.is_empty() {
                            self.grow();
                            return Ok(sent);
                        }
                        if pending.len() < before {
                            waits = WAITS.into_iter();
                        }
                        match again.why {
                            Some(fault) => self.client.stop(fault),
                            None => Error::retry("sink.busy", "the search server has answered in part only"),
                        }
                    }
                    Some(fault) => match fault.judge() {
                        Judgement::Again => self.client.stop(fault),
                        Judgement::TooLarge | Judgement::Row => {
                            if fault.judge() == Judgement::TooLarge {
                                self.shrink();
                            }
                            return Ok(sent.and(self.halves(part, pending, fault).await?));
                        }
                        _ => return Err(self.client.stop(fault)),
                    },
                },
            };
            let Some(wait) = waits.next().filter(|_| !self.is_silent(part)) else {
                return Err(given_up(lost));
            };
            tracing::debug!(wait, operations = pending.len(), error = %lost, "sent again");
            tokio::time::sleep(jittered(wait)).await;
            self.shrink();
            if part.bytes(&pending) > self.limit() && pending.len() > 1 {
                return Ok(sent.and(self.split(part, pending).await?));
            }
        }
    }

    /// The connection of a bulk broke, and not because the server is away or slow: it answers other calls.
    async fn is_broken(&self, begun: Instant) -> bool {
        begun.elapsed() < self.client.bulk_patience.answer
            && self.client.hello().await.is_ok_and(|reply| reply.status.is_success())
    }

    /// Nobody has heard of the server since the operations were first sent, in whatever parts.
    fn is_silent(&self, part: &Part<'_>) -> bool {
        part.began.elapsed().min(self.client.silence()) > self.client.bulk_patience.silence
    }

    /// The whole request was refused: the operation to blame is looked for.
    async fn halves(&self, part: &Part<'_>, places: Vec<usize>, fault: Fault) -> Result<Sent> {
        if let [place] = places[..] {
            let Some(_) = part.operations.list[place].row else { return Err(self.client.stop(fault)) };
            return Ok(Sent { refused: vec![(place, fault)], ..Sent::default() });
        }
        self.split(part, places).await
    }

    async fn split(&self, part: &Part<'_>, mut places: Vec<usize>) -> Result<Sent> {
        let rest = places.split_off(places.len() / 2);
        let first = self.part(part, places).await?;
        Ok(first.and(self.part(part, rest).await?))
    }
}

impl Part<'_> {
    fn size(&self, place: usize) -> usize {
        let operation = &self.operations.list[place];
        operation.end - operation.start
    }

    fn bytes(&self, places: &[usize]) -> usize {
        places.iter().map(|place| self.size(*place)).sum()
    }

    /// In runs of at most so many bytes.
    fn split(&self, places: Vec<usize>, limit: usize) -> Vec<Vec<usize>> {
        let (mut parts, mut bytes) = (Vec::<Vec<usize>>::new(), 0);
        for place in places {
            let size = self.size(place);
            match parts.last_mut().filter(|_| bytes + size <= limit) {
                Some(part) => part.push(place),
                None => {
                    parts.push(vec![place]);
                    bytes = 0;
                }
            }
            bytes += size;
        }
        parts
    }

    fn pack(&self, places: &[usize], compresses: bool) -> Packed {
        let list = &self.operations.list;
        let whole = places.windows(2).all(|pair| pair[0] + 1 == pair[1]);
        let bytes = match (whole, places.first(), places.last()) {
            (true, Some(first), Some(last)) => self.body.slice(list[*first].start..list[*last].end),
            _ => {
                let parts = places.iter().map(|place| &self.body[list[*place].start..list[*place].end]);
                Bytes::from(parts.collect::<Vec<_>>().concat())
            }
        };
        match (compresses && bytes.len() > WORTH_COMPRESSING).then(|| compressed(&bytes)).flatten() {
            Some(bytes) => Packed { bytes, gzip: true },
            None => Packed { bytes, gzip: false },
        }
    }

    /// Notes what is done; answers what is to be sent again, or the first refusal that stops everything.
    fn judge(&self, places: &[usize], answer: Answer, sent: &mut Sent) -> Result<Again, Fault> {
        let mut again = Again::default();
        if answer.items.len() != places.len() {
            // An answer that was cut says nothing.
            return Ok(Again { places: places.to_vec(), why: None });
        }
        for (place, Item { done }) in places.iter().zip(answer.items) {
            let operation = &self.operations.list[*place];
            let Some(fault) = done.error else {
                match (operation.action, done.status) {
                    // A delete does not ask whether a door is a door.
                    (Action::Delete, 404) if done.index.as_deref() == Some(self.door) => {
                        return Err(Fault::shut_out());
                    }
                    (Action::Delete, 404) => {}
                    (Action::Delete, _) => sent.deleted += 1,
                    // Neither refused nor there.
                    (Action::Index, _) if done.result.as_deref() == Some("noop") => {
                        sent.refused.push((*place, Fault::dropped()));
                    }
                    // No row stands behind it: fields of one that has vanished.
                    (Action::Update, _) if operation.row.is_none() => sent.deleted += 1,
                    (_, 201) => sent.created += 1,
                    _ => sent.updated += 1,
                }
                continue;
            };
            let fault = fault.with_status(done.status);
            match fault.judge() {
                Judgement::Again | Judgement::TooLarge => {
                    again.places.push(*place);
                    again.why = Some(fault.without_reason());
                }
                Judgement::Conflict if operation.conditional && done.index.as_deref() == Some(self.door) => {
                    return Err(Fault::shut_out());
                }
                // It has been done, or the document is another one by now.
                Judgement::Conflict if operation.conditional => {}
                // Other fields of the document were written at the same time.
                Judgement::Conflict if operation.action == Action::Update => again.places.push(*place),
                Judgement::Conflict => sent.conflicts.push((*place, fault.current_version())),
                Judgement::Row if operation.row.is_some() => sent.refused.push((*place, fault)),
                // Nothing is there whose fields could be taken away.
                _ if operation.action == Action::Update && fault.is_missing_document() => {}
                _ => return Err(fault),
            }
        }
        Ok(again)
    }
}

fn compressed(bytes: &Bytes) -> Option<Bytes> {
    let mut encoder = GzEncoder::new(Vec::with_capacity(bytes.len() / 4), Compression::fast());
    encoder.write_all(bytes).ok()?;
    encoder.finish().ok().map(Bytes::from)
}

fn jittered(millis: u64) -> Duration {
    Duration::from_millis(millis).mul_f64(0.75 + fastrand::f64() / 2.0)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::AtomicUsize;

    use tokio::net::TcpListener;
    use tokio::task::JoinSet;

    use super::super::client::BulkPatience;
    use super::super::operations::tests::operations;
    use super::*;
    use crate::Connection;

    #[test]
    fn parts_hold_every_operation_once_and_no_more_bytes_than_they_may() {
        let mut operations = operations();
        let body = Bytes::from(std::mem::take(&mut operations.body));
        let part = Part { door: "door", operations: &operations, body: &body, began: Instant::now() };
        let parts = part.split((0..5).collect(), part.size(0) * 2);
        assert_eq!(parts, [vec![0, 1], vec![2, 3], vec![4]]);
        assert_eq!(part.pack(&[0, 1, 2, 3, 4], true).bytes, body);
        assert_eq!(part.pack(&[0, 2], true).bytes.len(), part.bytes(&[0, 2]));
    }

    #[test]
    fn what_is_sent_to_other_machines_is_compressed_if_it_is_large() {
        let mut operations = operations();
        let large = vec![b' '; WORTH_COMPRESSING + 1];
        operations
            .index("6".to_owned(), 1, None, |out| {
                out.extend_from_slice(&large);
                Ok(())
            })
            .unwrap();
        let body = Bytes::from(std::mem::take(&mut operations.body));
        let part = Part { door: "door", operations: &operations, body: &body, began: Instant::now() };
        assert!(part.pack(&[5], true).gzip && part.pack(&[5], true).bytes.len() < 1000);
        assert!(!part.pack(&[5], false).gzip && !part.pack(&[0], true).gzip);
    }

    #[test]
    fn an_answer_that_was_cut_sends_everything_again() {
        let mut operations = operations();
        let body = Bytes::from(std::mem::take(&mut operations.body));
        let part = Part { door: "door", operations: &operations, body: &body, began: Instant::now() };
        let again = part.judge(&[0, 1], Answer { items: Vec::new() }, &mut Sent::default()).unwrap();
        assert_eq!(again.places, [0, 1]);
    }

    /// As servers answer where an ingest pipeline drops a document, or fails for it.
    #[test]
    fn a_document_that_an_ingest_pipeline_does_not_let_through_is_a_reject() {
        let mut operations = operations();
        let body = Bytes::from(std::mem::take(&mut operations.body));
        let part = Part { door: "door", operations: &operations, body: &body, began: Instant::now() };
        let failed = r#"{"status": 500, "error": {"type": "fail_processor_exception", "reason": "no"}}"#;
        let answer = format!(
            r#"{{"items": [{{"index": {{"status": 200, "result": "noop"}}}}, {{"index": {failed}}}]}}"#
        );
        let mut sent = Sent::default();
        let again = part.judge(&[0, 1], serde_json::from_str(&answer).unwrap(), &mut sent).unwrap();
        assert_eq!((again.places.len(), sent.created + sent.updated), (0, 0));
        let refused = sent.refused.iter().map(|(place, fault)| (*place, fault.of_row().0));
        assert_eq!(refused.collect::<Vec<_>>(), [(0, "row.dropped"), (1, "row.mapping")]);
    }

    #[tokio::test]
    async fn a_server_that_takes_bulks_and_says_nothing_is_given_up() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let asked = Arc::new(AtomicUsize::new(0));
        let count = Arc::clone(&asked);
        let mut silent = JoinSet::new();
        silent.spawn(async move {
            let mut open = Vec::new();
            while let Ok((line, _)) = listener.accept().await {
                count.fetch_add(1, Ordering::Relaxed);
                open.push(line);
            }
        });
        let mut client = Client::new(&Connection::new("search", url.into(), Vec::new())).unwrap();
        let (answer, silence) = (Duration::from_millis(20), Duration::from_millis(50));
        client.bulk_patience = BulkPatience { answer, silence };
        let lost = Bulk { client: &client, door: "door" }.send(operations()).await.unwrap_err();
        assert_eq!((lost.code, lost.remedy), ("sink.connection_lost", Remedy::Release));
        assert!(asked.load(Ordering::Relaxed) < WAITS.len(), "asked {asked:?} times");
    }

    #[test]
    fn documents_whose_shard_is_away_are_sent_again_and_told_as_an_outage() {
        let mut operations = operations();
        let body = Bytes::from(std::mem::take(&mut operations.body));
        let part = Part { door: "door", operations: &operations, body: &body, began: Instant::now() };
        let away = r#"{"status": 503, "error": {"type": "unavailable_shards_exception", "reason": "primary shard is not active"}}"#;
        let answer = format!(r#"{{"items": [{{"index": {{"status": 201}}}}, {{"index": {away}}}]}}"#);
        let mut sent = Sent::default();
        let again = part.judge(&[0, 1], serde_json::from_str(&answer).unwrap(), &mut sent).unwrap();
        assert_eq!((again.places, sent.created), (vec![1], 1));
        let error = again.why.unwrap().into_error("search");
        assert_eq!((error.code, error.remedy), ("sink.unavailable", Remedy::Release));
    }
}
