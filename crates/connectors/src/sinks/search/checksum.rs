//! A checksum in every document, by which an index is compared with its source without its documents being read: a bucket
//! of ids and the two halves of a hash, which the server can add up. Sums of whole ones would not be exact.

use std::collections::HashMap;
use std::io::Write;
use std::sync::{Mutex, PoisonError};

use serde_json::{Value, json};
use twox_hash::XxHash3_64;
use vitrina_core::{Result, Target};

use super::client::Client;
use super::control::encoded;

/// Where documents carry it.
pub(super) const FIELD: &str = "_vitrina";
pub(super) const BUCKETS: u16 = 4096;
/// Raised when the same rows become other bytes: what was written before says nothing of them then.
const FORM: u64 = 1;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Checksum {
    pub(super) bucket: u16,
    pub(super) hash: u64,
}

impl Checksum {
    /// Of a document as it is sent, under its id.
    pub(super) fn of(id: &str, document: &[u8]) -> Self {
        let seed = XxHash3_64::oneshot(id.as_bytes());
        Self { bucket: bucket(id), hash: XxHash3_64::oneshot_with_seed(seed, document) }
    }

    /// Into the document that ends here.
    pub(super) fn add_to(self, document: &mut Vec<u8>) {
        let Self { bucket, hash } = self;
        document.pop();
        let comma = if document.ends_with(b"{") { "" } else { "," };
        let (low, high) = (hash & 0xffff_ffff, hash >> 32);
        drop(write!(document, "{comma}\"{FIELD}\":{{\"bucket\":{bucket},\"low\":{low},\"high\":{high}}}}}"));
    }
}

pub(super) fn bucket(id: &str) -> u16 {
    u16::try_from(XxHash3_64::oneshot(id.as_bytes()) % u64::from(BUCKETS)).unwrap_or_default()
}

/// Where several pipelines write to a document, none of them knows all of it.
pub(super) fn is_wanted(target: &Target) -> bool {
    !target.document.partial && !target.document.no_checksum
}

/// The mapping of an index whose documents carry it.
pub(super) fn mapped(mut mapping: Value) -> Value {
    let unsearched = json!({"type": "long", "index": false});
    mapping["properties"][FIELD] = json!({"dynamic": "strict", "properties": {
        "bucket": {"type": "short"}, "low": unsearched.clone(), "high": unsearched}});
    mapping["_meta"]["vitrina"] = json!({"checksum": FORM});
    mapping
}

/// Whether documents of the indexes behind a name carry it. No index gains or loses it: it is asked for once, not once a run.
#[derive(Debug, Default)]
pub(super) struct Known(Mutex<HashMap<String, (String, bool)>>);

impl Known {
    fn of(&self, name: &str, index: &str) -> Option<bool> {
        let known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        known.get(name).filter(|(known, _)| known == index).map(|(_, carried)| *carried)
    }

    fn note(&self, name: &str, index: &str, carried: bool) {
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        known.insert(name.to_owned(), (index.to_owned(), carried));
    }
}

/// Do the documents of this index, which stands or will stand behind the name, carry it?
pub(super) async fn is_carried_behind(client: &Client, name: &str, index: &str) -> Result<bool> {
    if let Some(carried) = client.known.of(name, index) {
        return Ok(carried);
    }
    let carried = said(client, index).await?;
    if let Some(carried) = carried {
        client.known.note(name, index, carried);
    }
    Ok(carried.unwrap_or(false))
}

/// Do the documents of this index carry it, in the form of this release?
pub(super) async fn is_carried(client: &Client, index: &str) -> Result<bool> {
    Ok(said(client, index).await?.unwrap_or(false))
}

/// What its mapping says of that; `None` where there is no index.
async fn said(client: &Client, index: &str) -> Result<Option<bool>> {
    let found: Option<Value> = client.find(&format!("{}/_mapping", encoded(index))).await?;
    let indexes = found.as_ref().and_then(Value::as_object).into_iter().flatten();
    let form = |told: &Value| told.pointer("/mappings/_meta/vitrina/checksum").and_then(Value::as_u64);
    let forms: Vec<Option<u64>> = indexes.map(|(_, told)| form(told)).collect();
    Ok((!forms.is_empty()).then(|| forms.iter().all(|form| *form == Some(FORM))))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_checksum_is_the_last_field_of_its_document_and_depends_on_id_and_bytes() {
        let mut document = br#"{"title":"x"}"#.to_vec();
        let checksum = Checksum::of("7", &document);
        assert_ne!(checksum.hash, Checksum::of("8", &document).hash);
        assert_ne!(checksum.hash, Checksum::of("7", br#"{"title":"y"}"#).hash);
        checksum.add_to(&mut document);
        let read: Value = serde_json::from_slice(&document).unwrap();
        let (low, high) = (&read[FIELD]["low"], &read[FIELD]["high"]);
        assert_eq!(low.as_u64().unwrap() | high.as_u64().unwrap() << 32, checksum.hash);
        assert_eq!(read["title"], "x");
        let mut empty = b"{}".to_vec();
        checksum.add_to(&mut empty);
        assert!(serde_json::from_slice::<Value>(&empty).is_ok());
    }

    /// What is in indexes was written by these functions: another answer needs another `FORM`.
    #[test]
    fn checksums_stay_what_they_are() {
        let checksum = Checksum::of("7", br#"{"title":"x"}"#);
        assert_eq!((checksum.bucket, format!("{:016x}", checksum.hash).as_str()), (1530, "fb6760bc5553be61"));
    }
}
