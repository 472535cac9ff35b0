//! What a batch answers for and does not bring has vanished, unless it was refused. Under the limit of deletes.

use std::collections::HashSet;

use arrow_array::{Array, RecordBatch};
use arrow_schema::Schema;
use reqwest::Method;
use serde::Deserialize;
use serde_json::{Map, Value, json};
use vitrina_core::{Batch, Commit, DOCUMENT_ID, Error, Outcome, Result, Scope};
use vitrina_pgcopy::Kind;

use super::control::encoded;
use super::document::{id, id_of_row};
use super::indexes::{DocumentState, Found, Shards};
use super::made::Made;
use super::operations::Operations;
use super::values::Cells;
use super::{SearchSink, announce, indexes, mapping};
use crate::arrow_text::texts;
use crate::delivery::delete_limit;

/// Keys that one search asks for.
const KEYS_A_SEARCH: usize = 500;
const PAGE: usize = 5000;
/// Searches that are begun before the server is given up.
const SEARCHES: usize = 4;

/// Documents to be deleted.
#[derive(Debug, Default, Hash)]
pub(super) struct Gone {
    ids: Vec<String>,
    misplaced: Vec<Misplaced>,
}

/// A document that lies elsewhere than its id says.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct Misplaced {
    id: String,
    routing: String,
    /// Nothing else is deleted in its place, wherever the routing leads by then.
    state: DocumentState,
}

impl From<Vec<String>> for Gone {
    fn from(ids: Vec<String>) -> Self {
        Self { ids, misplaced: Vec::new() }
    }
}

impl Gone {
    fn len(&self) -> usize {
        self.ids.len() + self.misplaced.len()
    }
}

impl SearchSink {
    /// The documents that a batch answers for and does not bring. `asked` is the batch as it came: whoever names a key
    /// means the document under this very text, too.
    pub(super) async fn vanished(
        &mut self,
        (asked, batch): (&Batch, &Batch),
        commit: &Commit,
        live: &str,
        ids: &[String],
        outcome: &Outcome,
    ) -> Result<Gone> {
        let Scope::Keys(scope) = &batch.scope else {
            return Ok(Gone::default());
        };
        let refused = self.spared_ids(outcome);
        let spared: HashSet<&str> = ids.iter().chain(&refused).map(String::as_str).collect();
        let names_keys = batch.to.is_none() && batch.backfilled_to.is_none();
        let mut gone = self.in_scope(scope, &batch.rows.schema(), live).await?;
        if let (Scope::Keys(asked), true) = (&asked.scope, names_keys) {
            gone.extend(self.in_scope(asked, &batch.rows.schema(), live).await?);
        }
        let named: Vec<String> = if names_keys { [&gone, ids].concat() } else { Vec::new() };
        gone.retain(|id| !spared.contains(id.as_str()));
        gone.sort_unstable();
        gone.dedup();
        if self.target.document.partial {
            gone = self.with_own_fields(live, &gone).await?;
        }
        let misplaced = self.misplaced(live, named).await?;
        self.hold_delete_limit(commit, live, Gone { ids: gone, misplaced }).await
    }

    /// Documents of these ids that are nobody's row, wherever a row's own document is: by routings that Vitrina does not use.
    async fn misplaced(&self, live: &str, mut ids: Vec<String>) -> Result<Vec<Misplaced>> {
        if ids.is_empty() {
            return Ok(Vec::new());
        }
        ids.sort_unstable();
        ids.dedup();
        indexes::refresh(&self.client, live).await?;
        let mut found = indexes::misplaced::<Map<String, Value>>(&self.client, live, &ids).await?;
        if self.target.document.partial {
            let own = self.own_fields()?;
            let holds = |fields: &Map<String, Value>| {
                own.iter().any(|field| fields.get(field.as_str()).is_some_and(holds_something))
            };
            found.retain(|document| document.source.as_ref().is_some_and(holds));
        }
        let misplaced = |found: Found<Map<String, Value>>| {
            Some(Misplaced { id: found.id, routing: found.routing?, state: found.state? })
        };
        let mut found: Vec<Misplaced> = found.into_iter().filter_map(misplaced).collect();
        found.sort_unstable();
        Ok(found)
    }

    /// What becomes of them. A row that is refused keeps what it has.
    pub(super) fn deletes(&self, gone: Gone, version: i64, outcome: &Outcome) -> Result<Operations> {
        let Gone { ids, mut misplaced } = gone;
        if !misplaced.is_empty() {
            let refused: HashSet<String> = self.spared_ids(outcome).into_iter().collect();
            misplaced.retain(|document| !refused.contains(&document.id));
        }
        let mut operations = Operations::default();
        match self.target.document.partial {
            true => self.null_fields(ids, misplaced, &mut operations)?,
            false => {
                ids.into_iter().for_each(|id| operations.delete(id, version));
                for Misplaced { id, routing, state } in misplaced {
                    operations.delete_routed(id, &routing, state);
                }
            }
        }
        Ok(operations)
    }

    /// The ids of all documents that the scope may mean.
    pub(super) async fn in_scope(
        &self,
        scope: &RecordBatch,
        rows: &Schema,
        live: &str,
    ) -> Result<Vec<String>> {
        let schema = scope.schema();
        let columns: Vec<&String> = schema.fields().iter().map(|field| field.name()).collect();
        let is_key =
            columns.len() == self.key.len() && self.key.iter().all(|column| columns.contains(&column));
        if columns == [DOCUMENT_ID] && !is_key {
            return (0..scope.num_rows())
                .map(|row| Ok(texts(scope, &[DOCUMENT_ID.to_owned()], row)?.remove(0)))
                .collect();
        }
        if !is_key {
            return self.search_scope(scope, rows, live).await;
        }
        let whole = |row: &usize| (0..scope.num_columns()).all(|column| scope.column(column).is_valid(*row));
        let ids = (0..scope.num_rows()).filter(whole).map(|row| Ok(id_of_row(scope, &self.key, row)?.ok()));
        Ok(ids.collect::<Result<Vec<_>>>()?.into_iter().flatten().collect())
    }

    /// By the fields of the change key, where that is not the key: what was written before is made searchable first.
    async fn search_scope(&self, scope: &RecordBatch, rows: &Schema, live: &str) -> Result<Vec<String>> {
        let fields = self.scope_fields(scope, rows, &*self.made_behind(live).await?)?;
        indexes::refresh(&self.client, live).await?;
        let mut ids = Vec::new();
        let at_once = (KEYS_A_SEARCH / fields.len().max(1)).max(1);
        for start in (0..scope.num_rows()).step_by(at_once) {
            let end = (start + at_once).min(scope.num_rows());
            let keys: Vec<Value> = (start..end).map(|row| one_key(&fields, row)).collect();
            ids.extend(self.all_ids(live, &json!({"bool": {"should": keys}})).await?);
        }
        Ok(ids)
    }

    /// The values of a scope are texts, whatever they are in the rows.
    fn scope_fields<'a>(
        &self,
        scope: &'a RecordBatch,
        rows: &Schema,
        made: &Made,
    ) -> Result<Vec<(String, Cells<'a>)>> {
        let mut fields = Vec::new();
        let mapping = match self.mapping() {
            Ok(mapping) => mapping.clone(),
            Err(_) => mapping::mapping(&self.target, rows, &self.exact),
        };
        for (place, column) in scope.schema().fields().iter().enumerate() {
            let name = column.name();
            let field = self.target.document.field(name);
            let of_field = field.and_then(|field| mapping::searched_type(&mapping, field));
            let of_rows = rows.field_with_name(name).ok().and_then(Kind::of_field);
            let (Some(field), Some(of_field), Some(of_rows)) = (field, of_field, of_rows) else {
                return Err(unsearchable(name));
            };
            let cells = Cells::of(scope.column(place).as_ref(), Kind::AsText, true);
            let Some(cells) = cells.filter(|_| mapping::is_exact(of_field, of_rows)) else {
                return Err(unsearchable(name));
            };
            // The index may be older than the mapping.
            if !made.searched_type(field).is_some_and(|made| mapping::is_exact(made, of_rows)) {
                return Err(made_otherwise(&self.names.index, name));
            }
            fields.push((field.to_owned(), cells));
        }
        Ok(fields)
    }

    /// Page by page, however many there are. A page that was asked for and did not come is lost: the search begins anew.
    async fn all_ids(&self, index: &str, query: &Value) -> Result<Vec<String>> {
        let mut tries = 0;
        loop {
            tries += 1;
            match self.scroll(index, query).await {
                Err(_) if tries < SEARCHES => {}
                found => return found,
            }
        }
    }

    async fn scroll(&self, index: &str, query: &Value) -> Result<Vec<String>> {
        #[derive(Deserialize)]
        struct Page {
            #[serde(rename = "_scroll_id")]
            scroll: String,
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
        }
        let body = json!({"size": PAGE, "_source": false, "sort": ["_doc"], "query": query});
        let path = format!("{}/_search?scroll=1m&allow_partial_search_results=false", encoded(index));
        let mut page: Page = self.client.get(Method::POST, &path, Some(&body)).await?;
        let mut ids = Vec::new();
        loop {
            page.shards.require_all()?;
            let last = page.hits.hits.len() < PAGE;
            ids.extend(page.hits.hits.into_iter().map(|hit| hit.id));
            let scroll = json!({"scroll_id": page.scroll});
            if last {
                // It ends by itself as well.
                self.client.once(Method::DELETE, "_search/scroll", Some(&scroll)).await.ok();
                return Ok(ids);
            }
            let more = json!({"scroll": "1m", "scroll_id": page.scroll});
            let reply = self.client.once(Method::POST, "_search/scroll", Some(&more)).await?;
            page = self.client.read(&reply)?;
        }
    }

    /// Answers what is to be deleted. Where that seems too much, only what is really there counts.
    async fn hold_delete_limit(&mut self, commit: &Commit, live: &str, gone: Gone) -> Result<Gone> {
        if gone.len() == 0 {
            return Ok(gone);
        }
        let before = match commit.from.deletes.rows_before.or(self.rows_before) {
            Some(before) => before,
            None => {
                indexes::refresh(&self.client, live).await?;
                indexes::count(&self.client, live).await? + commit.backfill_deleted
            }
        };
        self.rows_before = Some(before);
        let digest = announce::digest(&gone);
        let known = commit.from.deletes.announced(digest);
        let held = announce::held(commit, digest);
        let hold = |gone: usize| {
            let deleting = known.unwrap_or(0).max(gone as u64);
            delete_limit::check(&self.target.name, &held, deleting, before)
        };
        let gone = match hold(gone.len()) {
            Ok(()) => gone,
            Err(_) => {
                let there = indexes::versions(&self.client, live, &gone.ids).await?;
                let there = Gone { ids: there.into_keys().collect(), ..gone };
                if there.len() > 0 {
                    hold(there.len())?;
                }
                there
            }
        };
        self.announce(commit, gone.len() as u64, digest, before).await?;
        Ok(gone)
    }

    /// What of a document is this pipeline's alone.
    fn own_fields(&self) -> Result<Vec<&String>> {
        let key: Vec<&str> =
            self.key.iter().filter_map(|column| self.target.document.field(column)).collect();
        let fields = &self.fence()?.held.control.fields;
        Ok(fields.iter().filter(|field| !key.contains(&field.as_str())).collect())
    }

    /// Those of these documents that have something to lose.
    async fn with_own_fields(&self, live: &str, ids: &[String]) -> Result<Vec<String>> {
        let own = self.own_fields()?;
        if own.is_empty() || ids.is_empty() {
            return Ok(Vec::new());
        }
        let there = indexes::fields_of(&self.client, live, &own, ids).await?;
        let held = there.into_iter().filter(|found| found.source.as_ref().is_some_and(holds_something));
        Ok(held.map(|found| found.id).collect())
    }

    /// The document is not this pipeline's alone: only its own fields go.
    fn null_fields(
        &self,
        gone: Vec<String>,
        misplaced: Vec<Misplaced>,
        operations: &mut Operations,
    ) -> Result<()> {
        let own = self.own_fields()?;
        let nulls: Map<String, Value> = own.into_iter().map(|field| (field.clone(), Value::Null)).collect();
        let nulls = json!(nulls).to_string();
        let write = |out: &mut Vec<u8>| {
            out.extend_from_slice(nulls.as_bytes());
            Ok(())
        };
        for id in gone {
            let _ = operations.update(id, None, false, write);
        }
        for Misplaced { id, routing, state } in misplaced {
            let _ = operations.update_routed(id, &routing, state, write);
        }
        Ok(())
    }

    /// Of rows that were refused, as their key's texts tell them.
    pub(super) fn spared_ids(&self, outcome: &Outcome) -> Vec<String> {
        self.ids_of(&self.rejects.keys(outcome))
    }

    /// Of documents whose keys have these texts.
    pub(super) fn ids_of(&self, keys: &[Vec<String>]) -> Vec<String> {
        keys.iter().filter_map(|key| id(&self.short_key(key)).ok()).collect()
    }
}

fn holds_something(source: &Value) -> bool {
    match source {
        Value::Null => false,
        Value::Object(fields) => fields.values().any(holds_something),
        _ => true,
    }
}

fn one_key(fields: &[(String, Cells<'_>)], row: usize) -> Value {
    let filter: Vec<Value> = fields
        .iter()
        .map(|(field, cells)| {
            let mut text = Vec::new();
            let value = cells.write(row, &mut text).ok().and_then(|()| serde_json::from_slice(&text).ok());
            match value {
                // What cannot be written is in no document.
                None => json!({"match_none": {}}),
                Some(Value::Null) => json!({"bool": {"must_not": {"exists": {"field": field}}}}),
                Some(value) => json!({"term": {field: value}}),
            }
        })
        .collect();
    json!({"bool": {"filter": filter}})
}

fn made_otherwise(index: &str, column: &str) -> Error {
    let message = format!(
        "index {index} was made with another mapping: its documents cannot be found by {column}, by which the source tells what has changed"
    );
    Error::fix("sink.index_outdated", message).hint("run in mode full: a load makes the index anew; one that several pipelines write to has to be deleted first")
}

fn unsearchable(column: &str) -> Error {
    Error::fix(
        "sink.change_key",
        format!("documents cannot be found by {column}, by which the source tells what has changed"),
    )
    .hint("give it a field of an exact type in the mapping, keyword or an integer, without normalizer, ignore_above or null_value, or make it the target's key; times and floating point numbers have none")
}
