//! The documents of an index: all of them by a scroll, which holds one page at a time, or some by their ids.

use std::collections::HashMap;

use reqwest::Method;
use serde::Deserialize;
use serde_json::{Value, json};
use vitrina_core::{Error, Result};

use super::form::Document;
use crate::sinks::search::client::Client;
use crate::sinks::search::control::encoded;
use crate::sinks::search::indexes::unread;

/// Documents of a page.
const PAGE: usize = 2000;
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
struct Shards {
    failed: u64,
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
        if counted.shards.failed > 0 { Err(unread()) } else { Ok(counted.count) }
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
        if page.shards.failed > 0 {
            Err(unread())
        } else {
            Ok(page.hits.hits.into_iter().next().map(|hit| hit.source))
        }
    }

    /// Every document once, as it was when this began.
    pub(super) async fn each(&self, mut visit: impl FnMut(&str, Document)) -> Result<()> {
        if self.is_missing {
            return Ok(());
        }
        let path = format!("{}/_search?scroll={KEPT}", encoded(self.name));
        let body = json!({"size": PAGE, "sort": ["_doc"]});
        let mut page: Page = self.client.get(Method::POST, &path, Some(&body)).await?;
        loop {
            if page.shards.failed > 0 {
                return Err(unread());
            }
            let scroll = page
                .scroll_id
                .clone()
                .ok_or_else(|| Error::bug("reconcile.scroll", "no scroll was opened"))?;
            let is_last = page.hits.hits.is_empty();
            page.hits.hits.into_iter().for_each(|hit| visit(&hit.id, hit.source));
            if is_last {
                return self.forget(&scroll).await;
            }
            let next = json!({"scroll": KEPT, "scroll_id": scroll});
            // Asked once: a page that was answered and lost would not come again.
            let reply = self.client.once(Method::POST, "_search/scroll", Some(&next)).await?;
            page = self.client.read(&reply)?;
        }
    }

    /// Only the server's memory depends on it.
    async fn forget(&self, scroll: &str) -> Result<()> {
        let body = json!({"scroll_id": scroll});
        self.client.call(Method::DELETE, "_search/scroll", Some(&body)).await.ok();
        Ok(())
    }

    /// As they are now, refreshed or not.
    pub(super) async fn of_ids(&self, ids: &[String]) -> Result<HashMap<String, Document>> {
        #[derive(Deserialize)]
        struct Found {
            docs: Vec<Got>,
        }
        #[derive(Deserialize)]
        struct Got {
            #[serde(rename = "_id")]
            id: String,
            #[serde(rename = "_source", default)]
            source: Document,
            #[serde(default)]
            found: bool,
            error: Option<Value>,
        }
        if ids.is_empty() || self.is_missing {
            return Ok(HashMap::new());
        }
        let path = format!("{}/_mget", encoded(self.name));
        let found: Found = self.client.get(Method::POST, &path, Some(&json!({"ids": ids}))).await?;
        if found.docs.iter().any(|got| got.error.is_some()) {
            return Err(unread());
        }
        Ok(found.docs.into_iter().filter(|got| got.found).map(|got| (got.id, got.source)).collect())
    }
}
