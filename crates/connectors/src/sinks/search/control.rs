//! Who owns an index: one document a target in an index of Vitrina's own, moved by compare-and-set. Where several pipelines
//! write to an index its document names them, and each keeps its lease in a document beside it.

use std::collections::BTreeMap;
use std::sync::Arc;

use reqwest::{Method, StatusCode};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use uuid::Uuid;
use vitrina_core::{Checkpoint, Error, Holder, Lease, LeaseToken, Owner, PipelineId, Result, RunId};

use super::client::Client;
use super::indexes;
use super::names::CONTROL;

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Control {
    /// The index readers search; the document's id may be another where several pipelines write to it.
    pub(super) target: String,
    pub(super) installation: Uuid,
    /// The only writer of the index. None where it was deleted, or where there are `writers`.
    pub(super) pipeline: Option<PipelineId>,
    /// Pipelines that write some of the fields each, with their installations.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub(super) writers: BTreeMap<PipelineId, Uuid>,
    /// The newest owner that has written, or has fenced those before it.
    pub(super) token: LeaseToken,
    /// Whose token it is; none where an older release has written it, and where nobody owns the index.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) owner: Option<Owner>,
    /// The physical index that readers see.
    #[serde(default)]
    pub(super) live: Option<String>,
    /// A swap to this one is under way.
    #[serde(default)]
    pub(super) next: Option<String>,
    /// What readers saw before, to go back to.
    #[serde(default)]
    pub(super) previous: Option<Previous>,
    /// Whose requests may be on their way: whoever comes next has to shut it out.
    #[serde(default)]
    pub(super) writer: Option<LeaseToken>,
    /// The run that goes back, or has gone back last.
    #[serde(default)]
    pub(super) back: Option<Back>,
    /// What its pipeline writes of documents that others write to as well.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(super) fields: Vec<String>,
    /// Pipelines whose place its pipeline has taken by a person's decision, until they are fenced.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(super) replaces: Vec<PipelineId>,
}

impl Control {
    /// The lease that the index was acquired with last.
    pub(super) fn holder(&self) -> Holder {
        Holder { owner: self.owner, token: self.token }
    }

    pub(super) fn acquired_by(self, lease: &Lease) -> Self {
        Self { token: lease.token, owner: Some(lease.owner), ..self }
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Back {
    pub(super) run: RunId,
    pub(super) to: Previous,
    /// It is under way: a run that goes on with it may be another one.
    #[serde(default)]
    pub(super) open: bool,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Previous {
    pub(super) index: String,
    /// Where the pipeline stood when it was exchanged; nothing where nobody knew.
    #[serde(default, with = "as_text")]
    pub(super) checkpoint: Option<Checkpoint>,
}

/// Kept as text: no field of it is ever searched, and none may be taken for a date.
mod as_text {
    use serde::{Deserialize, Deserializer, Serialize, Serializer};
    use vitrina_core::Checkpoint;

    pub(super) fn serialize<S: Serializer>(value: &Option<Checkpoint>, to: S) -> Result<S::Ok, S::Error> {
        let text = value.as_ref().map(serde_json::to_string).transpose();
        text.map_err(serde::ser::Error::custom)?.serialize(to)
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Option<Checkpoint>, D::Error> {
        let text = Option::<String>::deserialize(from)?;
        Ok(text.and_then(|text| serde_json::from_str(&text).ok()))
    }
}

/// The document as it was read, and what it is compared by.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub(super) struct Held {
    #[serde(rename = "_source")]
    pub(super) control: Control,
    #[serde(rename = "_seq_no")]
    seq_no: i64,
    #[serde(rename = "_primary_term")]
    primary_term: i64,
}

#[derive(Debug, Clone)]
pub(super) struct Controls {
    client: Arc<Client>,
    id: String,
}

impl Controls {
    pub(super) fn new(client: &Arc<Client>, id: String) -> Self {
        Self { client: Arc::clone(client), id }
    }

    pub(super) async fn read(&self) -> Result<Option<Held>> {
        self.client.find(&format!("{CONTROL}/_doc/{}", encoded(&self.id))).await
    }

    /// What is there, or `first` where there was nothing.
    pub(super) async fn read_or_create(&self, first: &Control) -> Result<Held> {
        match self.read().await? {
            Some(held) => Ok(held),
            None => self.create(first).await,
        }
    }

    /// `first`, or what somebody else has created meanwhile.
    pub(super) async fn create(&self, first: &Control) -> Result<Held> {
        self.prepare().await?;
        let path = format!("{CONTROL}/_create/{}?refresh=false", encoded(&self.id));
        let reply = self.client.call(Method::PUT, &path, Some(&json!(first))).await?;
        if !reply.status.is_success() && reply.status != StatusCode::CONFLICT {
            return Err(self.client.explain(&reply));
        }
        self.read()
            .await?
            .ok_or_else(|| Error::retry("sink.control", "the control document is not there yet"))
    }

    /// `None` where somebody else has moved it meanwhile.
    pub(super) async fn replace(&self, held: &Held, control: &Control) -> Result<Option<Held>> {
        let Held { seq_no, primary_term, .. } = held;
        let path =
            format!("{CONTROL}/_doc/{}?if_seq_no={seq_no}&if_primary_term={primary_term}", encoded(&self.id));
        let reply = self.client.call(Method::PUT, &path, Some(&json!(control))).await?;
        if reply.status == StatusCode::CONFLICT {
            // Or this very change, whose first answer was lost.
            return Ok(self.read().await?.filter(|now| now.control == *control));
        }
        let Written { seq_no, primary_term } = self.client.read(&reply)?;
        Ok(Some(Held { control: control.clone(), seq_no, primary_term }))
    }

    pub(super) async fn remove(&self) -> Result<()> {
        let reply =
            self.client.call(Method::DELETE, &format!("{CONTROL}/_doc/{}", encoded(&self.id)), None).await?;
        match reply.status {
            StatusCode::NOT_FOUND => Ok(()),
            status if status.is_success() => Ok(()),
            _ => Err(self.client.explain(&reply)),
        }
    }

    /// Pipelines that keep their leases beside the document of this index, with their installations. Asked where that does
    /// not name them: an older release did not.
    pub(super) async fn unnamed_writers(&self) -> Result<BTreeMap<PipelineId, Uuid>> {
        #[derive(Deserialize)]
        struct Page {
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
            #[serde(rename = "_source")]
            control: Value,
        }
        let refresh = self.client.call(Method::POST, &format!("{CONTROL}/_refresh"), None).await?;
        if refresh.status == StatusCode::NOT_FOUND {
            return Ok(BTreeMap::new());
        }
        let path = format!("{CONTROL}/_search?allow_partial_search_results=false&size=10000");
        let page: Page = self.client.get(Method::POST, &path, Some(&json!({}))).await?;
        let named = page
            .hits
            .hits
            .into_iter()
            .filter(|hit| hit.id.strip_prefix(&self.id).is_some_and(|rest| rest.starts_with('~')));
        let controls = named.filter_map(|hit| serde_json::from_value::<Control>(hit.control).ok());
        Ok(controls.filter_map(|control| Some((control.pipeline?, control.installation))).collect())
    }

    /// Hidden, and without a field that is searched.
    async fn prepare(&self) -> Result<()> {
        let body = json!({
            "settings": {"index": {"hidden": true, "number_of_shards": 1, "auto_expand_replicas": "0-1"}},
            "mappings": {"dynamic": false, "properties": {}},
        });
        create_alone(&self.client, CONTROL, &body, |_| false).await
    }
}

#[derive(Deserialize)]
struct Written {
    #[serde(rename = "_seq_no")]
    seq_no: i64,
    #[serde(rename = "_primary_term")]
    primary_term: i64,
}

/// Creates an index; answers whether it was not there before.
pub(super) async fn create(client: &Client, name: &str, body: &Value) -> Result<bool> {
    let reply = client.call(Method::PUT, &encoded(name), Some(body)).await?;
    match reply.fault() {
        None => Ok(true),
        Some(fault) if fault.is_already_there() => Ok(false),
        Some(fault) => Err(client.stop(fault)),
    }
}

/// The same for one that no readers may see by a template's doing: neither half of it nor what is not for them. `known`
/// tells aliases that others have put there meanwhile.
pub(super) async fn create_alone(
    client: &Client,
    name: &str,
    body: &Value,
    known: impl Fn(&str) -> bool,
) -> Result<()> {
    match create(client, name, body).await? {
        true => indexes::require_alone(client, name, known).await,
        false => Ok(()),
    }
}

/// A name as a part of a path.
pub(super) fn encoded(name: &str) -> String {
    percent_encoding::utf8_percent_encode(name, percent_encoding::NON_ALPHANUMERIC).to_string()
}
