//! The operations of a `_bulk`, taken apart so that some of them can be refused.

use std::io::Read;

use bytes::Bytes;
use flate2::read::GzDecoder;
use hyper::header::{ACCEPT_ENCODING, CONTENT_ENCODING};
use serde_json::{Map, Value, json};

use super::forward::Call;
use crate::Distribution;

/// One operation: its lines, and what an answer calls it.
#[derive(Debug)]
struct Operation {
    lines: String,
    action: String,
    /// `_index`, `_id` and whatever else came with the action.
    about: Map<String, Value>,
}

/// A `_bulk` of which the server gets only a part.
#[derive(Debug)]
pub(super) struct Thinned {
    /// What the server gets, in plain text; `None` when nothing is left.
    pub(super) call: Option<Call>,
    /// One for every operation: the item that refuses it, or `None` for one that is passed on.
    refusals: Vec<Option<Value>>,
}

impl Thinned {
    /// `None` for what cannot be taken apart: the server will say why.
    pub(super) fn new(mut call: Call, share: f64, server: Distribution) -> Option<Self> {
        let operations = read(&plain(&call)?)?;
        let index = index_of(&call.path);
        let mut kept = String::new();
        let mut refusals = Vec::new();
        for (position, operation) in operations.iter().enumerate() {
            if is_refused(position, share) {
                refusals.push(Some(operation.refusal(index.as_deref(), server)));
            } else {
                kept.push_str(&operation.lines);
                refusals.push(None);
            }
        }
        // Answers are put together: they must be readable and complete.
        call.headers.remove(CONTENT_ENCODING);
        call.headers.remove(ACCEPT_ENCODING);
        call.path = without_filter(&call.path);
        call.body = Bytes::from(kept);
        Some(Self { call: (!call.body.is_empty()).then_some(call), refusals })
    }

    /// The answer to the whole, from the server's answer to its part.
    pub(super) fn answer(self, to_the_part: Option<Value>) -> Value {
        let mut whole = to_the_part.unwrap_or_else(|| json!({"took": 0, "errors": false, "items": []}));
        let items = whole["items"].as_array().cloned().unwrap_or_default();
        let mut answered = items.into_iter();
        let any_refused = self.refusals.iter().any(Option::is_some);
        let items = self.refusals.into_iter().filter_map(|refusal| refusal.or_else(|| answered.next()));
        whole["items"] = items.collect();
        whole["errors"] = json!(any_refused || whole["errors"] == true);
        whole
    }
}

impl Operation {
    /// As a server says it whose queue is full.
    fn refusal(&self, index: Option<&str>, server: Distribution) -> Value {
        let index = self.about.get("_index").and_then(Value::as_str).or(index);
        let kind = match server {
            Distribution::Elasticsearch => "es_rejected_execution_exception",
            Distribution::OpenSearch | Distribution::OpenSearch3 => "rejected_execution_exception",
        };
        let error = json!({"type": kind, "reason": "rejected execution of a bulk: its queue is full"});
        let mut item = json!({"_index": index, "_id": self.about.get("_id"), "status": 429, "error": error});
        if server == Distribution::Elasticsearch {
            item["_type"] = json!("_doc");
        }
        json!({&self.action: item})
    }
}

/// Evenly spread: the n-th is refused when with it the share of n grows by a whole.
fn is_refused(position: usize, share: f64) -> bool {
    let due = |count: usize| (count as f64 * share + 1e-9).floor();
    due(position + 1) > due(position)
}

fn plain(call: &Call) -> Option<String> {
    let mut text = String::new();
    if call.headers.get(CONTENT_ENCODING).is_some_and(|encoding| encoding == "gzip") {
        GzDecoder::new(&*call.body).read_to_string(&mut text).ok()?;
    } else {
        (&*call.body).read_to_string(&mut text).ok()?;
    }
    Some(text)
}

/// Every action but a delete has a second line.
fn read(text: &str) -> Option<Vec<Operation>> {
    let mut operations = Vec::new();
    let mut lines = text.split_inclusive('\n').filter(|line| !line.trim().is_empty());
    while let Some(line) = lines.next() {
        let action: Map<String, Value> = serde_json::from_str(line).ok()?;
        let (action, about) = action.into_iter().next()?;
        let mut both = line.to_owned();
        if action != "delete" {
            both.push_str(lines.next()?);
        }
        operations.push(Operation { lines: both, action, about: about.as_object()?.clone() });
    }
    Some(operations)
}

/// That of a path such as `/films/_bulk`.
fn index_of(path: &str) -> Option<String> {
    let mut folders = path.split('?').next()?.trim_matches('/').split('/').rev();
    folders.next().filter(|last| *last == "_bulk")?;
    folders.next().map(str::to_owned)
}

fn without_filter(path: &str) -> String {
    let Some((path, query)) = path.split_once('?') else { return path.to_owned() };
    let kept: Vec<&str> = query.split('&').filter(|part| !part.starts_with("filter_path=")).collect();
    format!("{path}?{}", kept.join("&"))
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use flate2::{Compression, write::GzEncoder};
    use hyper::header::{HeaderMap, HeaderValue};

    use super::*;

    const LINES: &str = concat!(
        "{\"index\":{\"_id\":\"1\"}}\n{\"title\":\"one\"}\n",
        "{\"delete\":{\"_index\":\"other\",\"_id\":\"2\"}}\n",
        "{\"update\":{\"_id\":\"3\"}}\n{\"doc\":{}}\n",
        "{\"create\":{\"_id\":\"4\"}}\n{\"title\":\"four\"}\n",
    );

    fn call(body: impl Into<Bytes>) -> Call {
        let path = "/films/_bulk?refresh=true&filter_path=errors".to_owned();
        Call { method: hyper::Method::POST, path, headers: HeaderMap::new(), body: body.into() }
    }

    #[test]
    fn half_of_the_operations_are_refused_and_the_rest_is_passed_on_in_order() {
        let thinned = Thinned::new(call(LINES), 0.5, Distribution::OpenSearch).unwrap();
        let passed = thinned.call.clone().unwrap();
        assert_eq!(passed.path, "/films/_bulk?refresh=true");
        assert_eq!(
            passed.body,
            concat!(
                "{\"index\":{\"_id\":\"1\"}}\n{\"title\":\"one\"}\n",
                "{\"update\":{\"_id\":\"3\"}}\n{\"doc\":{}}\n"
            )
        );
        let answered =
            json!({"took": 3, "errors": false, "items": [{"index": {"_id": "1"}}, {"update": {"_id": "3"}}]});
        let whole = thinned.answer(Some(answered));
        assert_eq!(whole["errors"], true);
        let ids =
            [("index", "1", false), ("delete", "2", true), ("update", "3", false), ("create", "4", true)];
        for (item, (action, id, refused)) in whole["items"].as_array().unwrap().iter().zip(ids) {
            assert_eq!(item[action]["_id"], id);
            assert_eq!(item[action]["status"] == 429, refused, "{item}");
        }
        assert_eq!(whole["items"][1]["delete"]["_index"], "other");
        assert_eq!(whole["items"][3]["create"]["_index"], "films");
    }

    #[test]
    fn nothing_is_passed_on_when_all_is_refused() {
        let thinned = Thinned::new(call(LINES), 1.0, Distribution::OpenSearch).unwrap();
        assert!(thinned.call.is_none());
        let whole = thinned.answer(None);
        assert_eq!(whole["items"].as_array().unwrap().len(), 4);
        assert_eq!(whole["errors"], true);
    }

    #[test]
    fn a_body_may_be_compressed() {
        let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
        encoder.write_all(LINES.as_bytes()).unwrap();
        let mut call = call(encoder.finish().unwrap());
        call.headers.insert(CONTENT_ENCODING, HeaderValue::from_static("gzip"));
        let passed = Thinned::new(call, 0.0, Distribution::OpenSearch).unwrap().call.unwrap();
        assert_eq!(passed.body, LINES);
        assert!(!passed.headers.contains_key(CONTENT_ENCODING));
    }

    #[test]
    fn what_is_no_bulk_is_left_alone() {
        for body in ["not json\n", "{\"index\":{}}\n", "[]\n"] {
            assert!(Thinned::new(call(body), 0.5, Distribution::OpenSearch).is_none(), "{body}");
        }
    }

    #[test]
    fn of_one_operation_half_is_none() {
        assert!(!is_refused(0, 0.5) && is_refused(1, 0.5));
        assert_eq!((0..30).filter(|position| is_refused(*position, 0.3)).count(), 9);
    }
}
