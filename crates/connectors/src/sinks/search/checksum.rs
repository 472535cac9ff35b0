//! A checksum in every document, by which an index is compared with its source without its documents being read: a bucket
//! of ids and the two halves of a hash, which the server can add up. Sums of whole ones would not be exact.

use std::io::Write;

use serde_json::{Value, json};
use twox_hash::XxHash3_64;
use vitrina_core::Target;

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
    mapping["_meta"]["vitrina"]["checksum"] = json!(FORM);
    mapping
}

/// Do the documents of an index with this mapping carry it, in the form of this release?
pub(super) fn is_mapped(mapping: &Value) -> bool {
    mapping.pointer("/_meta/vitrina/checksum").and_then(Value::as_u64) == Some(FORM)
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
