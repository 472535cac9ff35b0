//! What an index was made for, as its mapping tells.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, PoisonError};

use reqwest::Method;
use serde_json::{Map, Value, json};
use vitrina_core::{Error, Result};

use super::client::Client;
use super::control::encoded;
use super::{SearchSink, checksum, mapping, numbers};

#[derive(Debug, Default)]
pub(super) struct Made {
    /// Its documents carry checksums, in the form of this release.
    pub(super) checksum: bool,
    /// Its documents hold numbers of keys in their shortest form.
    pub(super) short_numbers: bool,
    /// The columns that its ids were made of; unknown of an older release.
    pub(super) key: Option<Vec<String>>,
    mapping: Value,
}

/// Of the indexes behind a name: they are looked at once, not once a run.
#[derive(Debug, Default)]
pub(super) struct Known(Mutex<HashMap<String, (String, Arc<Made>)>>);

impl Known {
    fn of(&self, name: &str, index: &str) -> Option<Arc<Made>> {
        let known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        known.get(name).filter(|(known, _)| known == index).map(|(_, made)| Arc::clone(made))
    }

    /// An index that several pipelines write to has the same name whenever it is made again.
    pub(super) fn forget(&self, name: &str) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).remove(name);
    }

    fn note(&self, name: &str, index: &str, made: &Arc<Made>) {
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        known.insert(name.to_owned(), (index.to_owned(), Arc::clone(made)));
    }
}

impl Made {
    /// As it is now; of several all have to carry checksums. `None` where there is none.
    pub(super) async fn look(client: &Client, index: &str) -> Result<Option<Self>> {
        let found: Option<BTreeMap<String, Value>> =
            client.find(&format!("{}/_mapping", encoded(index))).await?;
        let mappings: Vec<Value> =
            found.into_iter().flatten().map(|(_, mut told)| told["mappings"].take()).collect();
        let checksum = mappings.iter().all(checksum::is_mapped);
        let short_numbers = mappings.iter().all(numbers::is_noted);
        Ok(mappings.into_iter().next().map(|mapping| {
            let key = mapping.pointer("/_meta/vitrina/key").cloned();
            let key = key.and_then(|key| serde_json::from_value(key).ok());
            Self { checksum, short_numbers, key, mapping }
        }))
    }

    /// The type of a field by which its documents can be found.
    pub(super) fn searched_type(&self, field: &str) -> Option<&str> {
        mapping::searched_type(&self.mapping, field)
    }

    pub(super) fn has_whole_source(&self) -> bool {
        mapping::has_whole_source(&self.mapping)
    }

    /// Fields that documents would be refused for.
    fn lacks(&self, fields: &[String]) -> Vec<String> {
        if self.mapping.get("dynamic").is_none_or(|dynamic| *dynamic != json!("strict")) {
            return Vec::new();
        }
        fields.iter().filter(|field| mapping::type_of(&self.mapping, field).is_none()).cloned().collect()
    }
}

impl SearchSink {
    /// What this index was made for, which stands or will stand behind the name.
    pub(super) async fn made_behind(&self, index: &str) -> Result<Arc<Made>> {
        match self.client.known.of(&self.names.index, index) {
            Some(made) => Ok(made),
            None => self.look_behind(index).await,
        }
    }

    async fn look_behind(&self, index: &str) -> Result<Arc<Made>> {
        let Some(made) = Made::look(&self.client, index).await?.map(Arc::new) else {
            return Ok(Arc::default());
        };
        self.client.known.note(&self.names.index, index, &made);
        Ok(made)
    }

    /// An index that was made for other columns has no fields for these: it is told before the first document is refused.
    /// Where several pipelines write to it, none of them can make another one: it is given the fields.
    pub(super) async fn require_fields(&self, index: &str) -> Result<()> {
        let Some((schema, wanted)) = &self.mapping else { return Ok(()) };
        let rules = &self.target.document;
        let columns = schema.fields().iter().filter_map(|column| rules.field(column.name()));
        let fields: Vec<String> = columns.map(str::to_owned).collect();
        if self.made_behind(index).await?.lacks(&fields).is_empty() {
            return Ok(());
        }
        // Somebody may have given it to the index since.
        let lacking = self.look_behind(index).await?.lacks(&fields);
        if lacking.is_empty() {
            return Ok(());
        }
        if !rules.partial {
            return Err(outdated(&self.names.index, &lacking));
        }
        self.give_fields(index, wanted, &lacking).await
    }

    async fn give_fields(&self, index: &str, wanted: &Value, lacking: &[String]) -> Result<()> {
        let root = |field: &String| match wanted["properties"].get(field) {
            Some(_) => field.clone(),
            None => field.split('.').next().unwrap_or(field).to_owned(),
        };
        let mapped = |field: &String| Some((root(field), wanted["properties"].get(root(field))?.clone()));
        let properties: Map<String, Value> = lacking.iter().filter_map(mapped).collect();
        // A mapping that is open takes what it does not name.
        let body = json!({"dynamic": wanted["dynamic"], "properties": properties});
        let path = format!("{}/_mapping", encoded(index));
        self.client.get::<Value>(Method::PUT, &path, Some(&body)).await?;
        tracing::info!(index, fields = lacking.join(", "), "the index has got fields for these columns");
        self.look_behind(index).await.map(drop)
    }
}

fn outdated(index: &str, lacking: &[String]) -> Error {
    let message =
        format!("index {index} was made for other columns: it has no field for: {}", lacking.join(", "));
    Error::fix("sink.index_outdated", message)
        .hint("nothing was written; run in mode full: a load makes the index anew, with these fields")
}
