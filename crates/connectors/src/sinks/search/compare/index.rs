//! The documents of an index: all of them by a scroll, which holds one page at a time, or some by their ids.

use std::collections::HashMap;

use reqwest::Method;
use serde::Deserialize;
use serde_json::{Value, json};
use vitrina_core::{Error, Result};

use super::Sum;
use super::form::Document;
use crate::sinks::search::checksum::{BUCKETS, FIELD};
use crate::sinks::search::client::Client;
use crate::sinks::search::control::encoded;
use crate::sinks::search::indexes::{self, Shards};

/// Documents of a page at most, where they are small.
const PAGE: usize = 2000;
/// Whole documents of a page at most: the next ones may be larger than those before.
const WHOLE_PAGE: usize = 500;
/// Of the first look at them, which tells how large they are.
const SAMPLE: usize = 20;
/// What a page should come to, and what is too much for the server.
const PAGE_BYTES: usize = 4 << 20;
const TOO_MUCH: usize = 4 * PAGE_BYTES;
/// How long the server keeps a scroll that nobody asks for.
const KEPT: &str = "5m";

#[derive(Debug)]
pub(super) struct Index<'a> {
    pub(super) client: &'a Client,
    pub(super) name: &'a str,
    /// It has no documents.
    pub(super) is_missing: bool,
}

#[derive(Deserialize)]
struct Page {
    #[serde(rename = "_scroll_id")]
    scroll_id: Option<String>,
    #[serde(rename = "_shards")]
    shards: Shards,
    hits: Hits,
}

#[derive(Deserialize)]
struct Hits {
    hits: Vec<Hit>,
}

#[derive(Deserialize)]
struct Hit {
    #[serde(rename = "_id")]
    id: String,
    #[serde(rename = "_source", default)]
    source: Document,
    #[serde(rename = "_routing")]
    routing: Option<String>,
}

/// What is seen of an index that is read.
pub(super) enum Visit<'a> {
    /// It is read from its beginning, perhaps once more.
    Begin,
    /// `is_routed`: it lies where no document of this id is looked for.
    Document { id: &'a str, document: Document, is_routed: bool },
}

#[derive(Deserialize)]
struct Summed {
    #[serde(rename = "_shards")]
    shards: Shards,
    hits: Total,
    aggregations: Aggregations,
}

#[derive(Deserialize)]
struct Total {
    total: Count,
}

#[derive(Deserialize)]
struct Count {
    value: u64,
}

#[derive(Deserialize)]
struct Aggregations {
    placed: Placed,
}

#[derive(Deserialize)]
struct Placed {
    buckets: Buckets,
}

#[derive(Deserialize)]
struct Buckets {
    buckets: Vec<Bucket>,
}

#[derive(Deserialize)]
struct Bucket {
    key: i64,
    doc_count: u64,
    low: Part,
    high: Part,
}

#[derive(Deserialize)]
struct Part {
    value: f64,
}

/// Documents that were stored under a routing: Vitrina uses none.
fn routed() -> Value {
    json!({"exists": {"field": "_routing"}})
}

/// The checksum that a document carries.
fn stored(document: &Document) -> Option<u64> {
    let checksum: Value = serde_json::from_str(document.get(FIELD)?.get()).ok()?;
    Some(checksum.get("low")?.as_u64()? | checksum.get("high")?.as_u64()? << 32)
}

impl Index<'_> {
    /// What was written before can be searched from now on.
    pub(super) async fn refresh(&self) -> Result<()> {
        if self.is_missing {
            return Ok(());
        }
        let path = format!("{}/_refresh", encoded(self.name));
        self.client.get::<Value>(Method::POST, &path, None).await.map(drop)
    }

    pub(super) async fn count(&self) -> Result<u64> {
        #[derive(Deserialize)]
        struct Counted {
            count: u64,
            #[serde(rename = "_shards")]
            shards: Shards,
        }
        if self.is_missing {
            return Ok(0);
        }
        let counted: Counted =
            self.client.get(Method::GET, &format!("{}/_count", encoded(self.name)), None).await?;
        counted.shards.require_all()?;
        Ok(counted.count)
    }

    /// The document that comes first by a field.
    pub(super) async fn first_by(&self, field: &str, order: &str) -> Result<Option<Document>> {
        if self.is_missing {
            return Ok(None);
        }
        let body = json!({"size": 1, "sort": [{field: {"order": order, "missing": "_last"}}],
                          "query": {"exists": {"field": field}}});
        let path = format!("{}/_search", encoded(self.name));
        let page: Page = self.client.get(Method::POST, &path, Some(&body)).await?;
        page.shards.require_all()?;
        Ok(page.hits.hits.into_iter().next().map(|hit| hit.source))
    }

    /// Every document once, as it was when this began. Pages are as large as their documents allow.
    pub(super) async fn each(&self, mut visit: impl FnMut(Visit<'_>)) -> Result<()> {
        let (mut size, mut is_sample) = (SAMPLE, true);
        loop {
            visit(Visit::Begin);
            let body = json!({"size": size, "sort": ["_doc"]});
            match self.scroll(&body, is_sample, &mut visit).await? {
                None => return Ok(()),
                Some(fits) => (size, is_sample) = (fits, false),
            }
        }
    }

    /// The checksums that documents of some buckets carry, and with `strangers` the documents that `sums` has added to none.
    pub(super) async fn each_checksum(
        &self,
        buckets: &[u16],
        strangers: bool,
        mut visit: impl FnMut(&str, Option<u64>),
    ) -> Result<()> {
        let mut visit = |seen: Visit<'_>| {
            if let Visit::Document { id, document, is_routed } = seen {
                visit(id, stored(&document).filter(|_| !is_routed));
            }
        };
        let bucket = format!("{FIELD}.bucket");
        let mut of = vec![json!({"terms": {&bucket: buckets}})];
        if strangers {
            of.push(json!({"bool": {"must_not": {"exists": {"field": &bucket}}}}));
            of.push(json!({"range": {&bucket: {"lt": 0}}}));
            of.push(json!({"range": {&bucket: {"gte": BUCKETS}}}));
            of.push(routed());
        }
        let body = json!({"size": PAGE, "sort": ["_doc"], "_source": [FIELD],
                          "query": {"bool": {"should": of, "minimum_should_match": 1}}});
        self.scroll(&body, false, &mut visit).await.map(drop)
    }

    /// What all documents of a bucket come to, and how many documents are in none: they carry no checksum, or lie where no
    /// document of their id is looked for.
    pub(super) async fn sums(&self) -> Result<(Vec<Sum>, u64)> {
        let mut sums = vec![Sum::default(); usize::from(BUCKETS)];
        if self.is_missing {
            return Ok((sums, 0));
        }
        let of = |part: &str| json!({"sum": {"field": format!("{FIELD}.{part}")}});
        let buckets = json!({"terms": {"field": format!("{FIELD}.bucket"), "size": 2 * BUCKETS},
                             "aggs": {"low": of("low"), "high": of("high")}});
        let placed = json!({"filter": {"bool": {"must_not": routed()}}, "aggs": {"buckets": buckets}});
        let body = json!({"size": 0, "track_total_hits": true, "aggs": {"placed": placed}});
        let path = format!("{}/_search", encoded(self.name));
        let answer: Summed = self.client.get(Method::POST, &path, Some(&body)).await?;
        answer.shards.require_all()?;
        let mut rows = 0;
        for found in answer.aggregations.placed.buckets.buckets {
            let place = usize::try_from(found.key).ok().and_then(|place| sums.get_mut(place));
            let Some(place) = place else { continue };
            rows += found.doc_count;
            // Whole numbers below 2^53: a double holds them as they are.
            *place =
                Sum { rows: found.doc_count, low: found.low.value as u64, high: found.high.value as u64 };
        }
        Ok((sums, answer.hits.total.value.saturating_sub(rows)))
    }

    /// Answers how many documents a page should have instead, where they are too large for so many, or a sample shows that
    /// there may be more: then not all of them were seen.
    async fn scroll(
        &self,
        body: &Value,
        mut is_sample: bool,
        visit: &mut impl FnMut(Visit<'_>),
    ) -> Result<Option<usize>> {
        if self.is_missing {
            return Ok(None);
        }
        let path = format!("{}/_search?scroll={KEPT}", encoded(self.name));
        let mut reply = self.client.call(Method::POST, &path, Some(body)).await?;
        loop {
            let page: Page = self.client.read(&reply)?;
            page.shards.require_all()?;
            let scroll =
                page.scroll_id.ok_or_else(|| Error::bug("reconcile.scroll", "no scroll was opened"))?;
            let documents = page.hits.hits.len();
            if documents == 0 {
                self.forget(&scroll).await;
                return Ok(None);
            }
            let fits = (PAGE_BYTES * documents / reply.body.len().max(1)).clamp(1, WHOLE_PAGE);
            let may_grow = is_sample && documents == SAMPLE && fits > SAMPLE;
            let is_whole = body.get("_source").is_none();
            if is_whole && (may_grow || (reply.body.len() > TOO_MUCH && fits < documents)) {
                self.forget(&scroll).await;
                return Ok(Some(fits));
            }
            is_sample = false;
            for hit in page.hits.hits {
                let is_routed = hit.routing.is_some();
                visit(Visit::Document { id: &hit.id, document: hit.source, is_routed });
            }
            let next = json!({"scroll": KEPT, "scroll_id": scroll});
            // Asked once: a page that was answered and lost would not come again.
            reply = self.client.once(Method::POST, "_search/scroll", Some(&next)).await?;
        }
    }

    /// Only the server's memory depends on it.
    async fn forget(&self, scroll: &str) {
        let body = json!({"scroll_id": scroll});
        self.client.call(Method::DELETE, "_search/scroll", Some(&body)).await.ok();
    }

    /// As they are now, refreshed or not.
    pub(super) async fn of_ids(&self, ids: &[String]) -> Result<HashMap<String, Document>> {
        if ids.is_empty() || self.is_missing {
            return Ok(HashMap::new());
        }
        let there = indexes::of_ids(self.client, self.name, "", ids).await?;
        Ok(there.into_iter().map(|document| (document.id, document.source.unwrap_or_default())).collect())
    }

    /// Those that lie elsewhere, by their ids, with their routings.
    pub(super) async fn misplaced(&self, ids: &[String]) -> Result<HashMap<String, Vec<(String, Document)>>> {
        let mut misplaced: HashMap<String, Vec<(String, Document)>> = HashMap::new();
        if self.is_missing {
            return Ok(misplaced);
        }
        for found in indexes::misplaced::<Document>(self.client, self.name, ids).await? {
            let Some(routing) = found.routing else { continue };
            misplaced.entry(found.id).or_default().push((routing, found.source.unwrap_or_default()));
        }
        Ok(misplaced)
    }
}
