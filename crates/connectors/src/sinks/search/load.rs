//! A load: an index of its own that nobody searches, filled batch by batch, counted, and then put in the place of the one
//! that readers see, in one step. The one before stays, to go back to.

use std::collections::{BTreeSet, HashSet};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use arrow_array::RecordBatch;
use reqwest::Method;
use serde::Deserialize;
use serde_json::{Value, json};
use uuid::Uuid;
use vitrina_core::{
    Batch, Checkpoint, Commit, Entry, Error, ErrorKind, Load, LoadPath, Outcome, Result, RowChange, Scope,
};

use super::announce::{digest, held};
use super::control::{self, Control, Previous, encoded};
use super::fence::Fence;
use super::indexes::{self, Standing};
use super::made::Made;
use super::mark::{self, Mark};
use super::names::Names;
use super::rollback::established;
use super::upsert::Route;
use super::{SearchSink, load_settings, mapping, reader_aliases, versions};
use crate::delivery::{OpenRejects, after_load, delete_limit, enter_load};

/// Documents that are looked for in the new index before it takes the place of the old one.
const SAMPLE: u64 = 1000;

/// Bytes that a server may hold unsearchable before a load has it make segments of them.
const BUFFERED: u64 = 32 << 20;

/// What a load has sent and the server has not made segments of.
#[derive(Debug, Default)]
pub(super) struct Buffered {
    bytes: u64,
    sent: u64,
}

impl Buffered {
    /// Few large segments: the more there is already, the more comes together.
    fn is_large(&self) -> bool {
        self.bytes > BUFFERED.max(self.sent / 4)
    }

    fn add(&mut self, bytes: u64) {
        self.bytes += bytes;
        self.sent += bytes;
    }
}

/// Some of the documents of an index, and how many it has.
struct Sample {
    before: u64,
    ids: Vec<String>,
}

impl SearchSink {
    /// A pass that reads everything there is, though by its cursor: what is in the index by now was not written by this
    /// pipeline, and must not stay in it. It is a load like any other.
    pub(super) fn is_first_pass(&self, batch: &Batch, commit: &Commit) -> bool {
        let first = commit.from.load.is_some() || commit.from.position.is_start();
        first && batch.to.is_some() && !self.target.document.partial
    }

    pub(super) async fn write_load(
        &mut self,
        batch: &Batch,
        begins: bool,
        commit: &Commit,
        outcome: &mut Outcome,
    ) -> Result<Checkpoint> {
        if self.target.document.partial {
            return self.upsert_load(batch, begins, commit, outcome).await;
        }
        let known = commit.from.load.filter(|_| !begins);
        let mut load = match known {
            Some(load) => load,
            None if begins => Load::begin(LoadPath::Staged),
            None => return Err(lost("this load was begun without an index of its own")),
        };
        enter_load(load, batch, outcome);
        if self.made != Some(load.id) {
            if batch.columns_unknown {
                return self.write_nothing(batch, load, commit, outcome).await;
            }
            self.begin_load(load).await?;
        }
        load.made = true;
        let index = self.names.physical(load.id);
        let door = self.fence_mut()?.write_alias(&index).await?;
        let fitting = self.fitting(batch, &index, outcome).await?;
        let batch: &Batch = &fitting;
        let (rows, ids) = self.distinct(batch, outcome)?;
        let checksum = self.carries_checksum(&index).await?;
        let version = versions::draw(commit.lease.token)?;
        let route = Route { door: &door, index: &index, version, checksum };
        if !ids.is_empty() {
            self.send_load(&route, &rows, &ids, outcome).await?;
        }
        let unloaded = self.unload(&route, batch, &rows, &ids, outcome).await?;
        outcome.closed = self.rejects.closed_in_load(load.id, batch, &self.key, outcome)?;
        load.rows = match self.tells_every_row(batch) {
            true => load.rows + outcome.counts.written(),
            false => (load.rows + outcome.counts.inserted).saturating_sub(unloaded),
        };
        self.check_rejects(commit, outcome).await?;
        let mut change = RowChange::default();
        if batch.ends_pass() {
            let exact = self.tells_every_row(batch);
            change = self.finish_load(load, exact, &route, commit, outcome).await?;
        }
        let (commit, change) = self.counted(commit, change);
        after_load(load, batch, &commit, change)
    }

    /// Nothing has come that an index could be made for.
    async fn write_nothing(
        &mut self,
        batch: &Batch,
        load: Load,
        commit: &Commit,
        outcome: &mut Outcome,
    ) -> Result<Checkpoint> {
        self.check_rejects(commit, outcome).await?;
        if batch.ends_pass() {
            self.refuse_to_empty().await?;
        }
        after_load(load, batch, commit, RowChange::default())
    }

    /// What was sent lies in the server's memory until a refresh makes segments of it, and one thread does that: a part of
    /// it is done on the way, lest all others wait for it at the end.
    async fn send_load(
        &mut self,
        route: &Route<'_>,
        rows: &RecordBatch,
        ids: &[String],
        outcome: &mut Outcome,
    ) -> Result<()> {
        if self.buffered.is_large() {
            // Only time depends on it.
            let (sent, _) = tokio::join!(
                self.send(route, rows, ids, outcome),
                indexes::refresh(&self.client, route.index)
            );
            sent?;
            self.buffered.bytes = 0;
        } else {
            self.send(route, rows, ids, outcome).await?;
        }
        self.buffered.add(outcome.counts.bytes);
        Ok(())
    }

    /// Every row comes once. A pass by cursor brings one as often as it changes meanwhile, and a transform a key as often as
    /// it likes: of these only what they have made is counted, and a document that was there already may be one whose
    /// batch was never entered.
    fn tells_every_row(&self, batch: &Batch) -> bool {
        matches!(batch.scope, Scope::Load { .. }) && !self.repeats_keys
    }

    /// A row that came in this pass already may have left the query since; one that is refused now has not. Answers how many
    /// may have been there.
    async fn unload(
        &self,
        route: &Route<'_>,
        batch: &Batch,
        rows: &RecordBatch,
        ids: &[String],
        outcome: &mut Outcome,
    ) -> Result<u64> {
        let Scope::Keys(scope) = &batch.scope else { return Ok(0) };
        let mut gone = self.in_scope(scope, &batch.rows.schema(), route.index).await?;
        // Those of this batch: what was refused before and has come since is as any other.
        let refused = self.ids_of(&OpenRejects::default().keys(outcome));
        let spared: HashSet<&String> = ids.iter().chain(&refused).collect();
        gone.retain(|id| !spared.contains(id));
        let unloaded = gone.len() as u64;
        let shipped = self.ship(route, self.deletes(gone.into(), route.version, outcome)?, rows).await?;
        outcome.counts.bytes += shipped.counts.bytes;
        Ok(unloaded)
    }

    /// Where several pipelines write to an index none of them can exchange it: the load goes into it as it is.
    async fn upsert_load(
        &mut self,
        batch: &Batch,
        begins: bool,
        commit: &Commit,
        outcome: &mut Outcome,
    ) -> Result<Checkpoint> {
        let load = commit.from.load.unwrap_or_else(|| Load::begin(LoadPath::Direct));
        if begins {
            tracing::info!(
                "several pipelines write to this index: what has vanished from the source stays in it"
            );
        }
        enter_load(load, batch, outcome);
        let mut checkpoint = self.upsert(batch, commit, outcome).await?;
        checkpoint.load = (!batch.ends_pass()).then_some(load);
        Ok(checkpoint)
    }

    /// The index is created with the settings that the target and the server's templates give it; what a load sets aside of
    /// them is noted in it.
    async fn begin_load(&mut self, load: Load) -> Result<()> {
        self.refuse_foreign().await?;
        self.clear_loads().await?;
        let index = self.names.physical(load.id);
        let door = self.names.write_alias(self.fence()?.lease.token);
        let mapping = reader_aliases::noted(&self.target, self.whole_mapping()?);
        let mapping = self.mark(Some(load.id))?.put_on(mapping);
        let mut body = json!({"settings": mapping::settings(&self.target), "mappings": mapping});
        body["aliases"] = json!({&door: {"is_hidden": true}});
        match control::create(&self.client, &index, &body).await? {
            true => self.fence_mut()?.created_with(&door, &index, true),
            // By a call whose answer was lost, or by an earlier owner.
            false => {
                self.require_own(&index).await?;
                self.fence_mut()?.created_with(&door, &index, false);
            }
        }
        let (names, client) = (self.names.clone(), Arc::clone(&self.client));
        let alone = indexes::require_alone(&client, &index, |alias| names.is_door(alias)).await;
        match alone {
            Ok(()) => self.made = Some(load.id),
            Err(_) => indexes::delete(&self.client, &index).await?,
        }
        alone?;
        load_settings::set_aside(&self.client, &index).await
    }

    pub(super) async fn refuse_foreign(&self) -> Result<()> {
        let standing = Standing::look(&self.client, &self.names).await?;
        refuse_taken(&self.names, &standing, self.target.document.take_over)?;
        reader_aliases::refuse_names_of_others(&self.client, &self.target, &self.names).await?;
        reader_aliases::refuse_rules_of_others(&self.client, &self.names, &standing).await
    }

    /// Counted, held against the limits, exchanged.
    async fn finish_load(
        &mut self,
        load: Load,
        exact: bool,
        route: &Route<'_>,
        commit: &Commit,
        outcome: &mut Outcome,
    ) -> Result<RowChange> {
        let Route { index, door, .. } = route;
        if self.live.as_deref() == Some(*index) {
            // The swap had happened, and its answer or the checkpoint's was lost.
            self.announce(commit, 0, digest(&load.id), 0).await?;
            return Ok(RowChange::default());
        }
        let kept = match self.keep_refused(index, door, outcome).await {
            Err(error) => self.unless_unreadable(error).await.map(|()| 0)?,
            Ok(kept) => kept,
        };
        let settled = load_settings::to_give_back(&self.client, index, &self.target).await?;
        let (path, settled) = (format!("{}/_settings", encoded(index)), Some(&settled));
        let (refreshed, sample, settled) = tokio::join!(
            indexes::refresh(&self.client, index),
            self.sample(),
            self.client.get::<Value>(Method::PUT, &path, settled)
        );
        refreshed.and(settled.map(drop))?;
        let found = indexes::count(&self.client, index).await?;
        if exact && found > load.rows + kept {
            return Err(self.begin_anew(load, found - kept, commit).await);
        }
        require_all(load, found - kept.min(found))?;
        if found == 0 {
            self.refuse_to_empty().await?;
        }
        let sample = match sample {
            Err(error) => self.unless_unreadable(error).await.map(|()| None)?,
            Ok(sample) => sample,
        };
        let change = match sample {
            Some(sample) => {
                let held = held(commit, digest(&load.id));
                self.hold_load_limit(sample, index, found, &held).await?
            }
            None => RowChange { inserted: found, ..RowChange::default() },
        };
        outcome.counts.deleted = change.deleted;
        self.announce(commit, change.deleted, digest(&load.id), change.rows_before.unwrap_or(0)).await?;
        self.swap(index, commit).await?;
        Ok(change)
    }

    /// A batch was sent whose checkpoint was never entered, and read again it did not bring all of its rows: somebody has
    /// deleted them at the source meanwhile. Nobody can tell which of the documents those are.
    async fn begin_anew(&self, load: Load, found: u64, commit: &Commit) -> Error {
        let checkpoint = commit.from.without_pass();
        let outcome = Outcome::default();
        let entry = Entry {
            lease: &commit.lease,
            from_version: commit.from_version,
            checkpoint: &checkpoint,
            outcome: &outcome,
        };
        let message = format!(
            "the index of this load holds {found} documents, and {} were to come: rows vanished while it went on after an interruption; it starts anew",
            load.rows
        );
        match self.ledger.commit(&entry).await {
            Ok(_) => Error::retry("sink.load_mixed", message),
            Err(error) => error,
        }
    }

    /// Whatever has the name: nobody's documents are exchanged for nothing.
    async fn refuse_to_empty(&self) -> Result<()> {
        let standing = Standing::look(&self.client, &self.names).await?;
        let taken = standing.concrete || !standing.behind.is_empty();
        match taken && indexes::count(&self.client, &self.names.index).await? > 0 {
            true => Err(delete_limit::source_is_empty(&self.target.name)),
            false => Ok(()),
        }
    }

    /// How many documents vanish by the swap: exactly for few, by a sample for many.
    async fn hold_load_limit(
        &self,
        sample: Sample,
        index: &str,
        found: u64,
        commit: &Commit,
    ) -> Result<RowChange> {
        let Sample { before, ids } = sample;
        let query = json!({"ids": {"values": &ids}});
        let there = if ids.is_empty() { 0 } else { indexes::count_of(&self.client, index, &query).await? };
        let missing = (ids.len() as u64).saturating_sub(there) as f64 / (ids.len() as f64).max(1.0);
        let gone = before.saturating_sub(found).max((missing * before as f64).round() as u64);
        delete_limit::check(&self.target.name, commit, gone, before)?;
        let inserted = found.saturating_sub(before.saturating_sub(gone));
        Ok(RowChange { deleted: gone, inserted, rows_before: Some(before) })
    }

    /// What readers see is closed or has lost shards: nothing can be compared with it, and a load is what cures it.
    async fn unless_unreadable(&self, error: Error) -> Result<()> {
        let Some(live) = &self.live else { return Err(error) };
        if error.kind != ErrorKind::IndexClosed && !indexes::is_red(&self.client, live).await? {
            return Err(error);
        }
        tracing::warn!(
            index = live,
            "what readers see cannot be read, as it is closed or has lost shards: the delete limit of this load is not held, and no document is carried over"
        );
        Ok(())
    }

    /// Of what readers see.
    async fn sample(&self) -> Result<Option<Sample>> {
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
        }
        let Some(live) = &self.live else { return Ok(None) };
        indexes::refresh(&self.client, live).await?;
        let before = indexes::count(&self.client, live).await?;
        if !self.has_same_ids(live).await? {
            return Ok(Some(Sample { before, ids: Vec::new() }));
        }
        let query = json!({"function_score": {"query": {"match_all": {}}, "random_score": {}}});
        let body = json!({"size": SAMPLE, "_source": false, "query": query});
        let path = format!("{}/_search?allow_partial_search_results=false", encoded(live));
        let page: Page = self.client.get(Method::POST, &path, Some(&body)).await?;
        Ok(Some(Sample { before, ids: page.hits.hits.into_iter().map(|hit| hit.id).collect() }))
    }

    /// The same row has the same id in what readers see: its key is the same, and numbers in it are written the same way.
    /// Else only counts can be compared.
    async fn has_same_ids(&self, live: &str) -> Result<bool> {
        let made = Made::look(&self.client, live).await?.unwrap_or_default();
        let has_numbers = self.short_keys.contains(&true);
        Ok(made.key.is_none_or(|key| key == self.key) && (made.short_numbers || !has_numbers))
    }

    /// Readers get the new index; what they saw before is kept.
    async fn swap(&mut self, index: &str, commit: &Commit) -> Result<()> {
        let older = self.older_than(index).await?;
        match self.exchange(index, &older).await {
            // A snapshot that is just being made holds on to them.
            Err(error) if error.is_refused() && !older.is_empty() => {
                self.exchange(index, &[]).await?;
            }
            exchanged => exchanged?,
        }
        let control = Control { back: None, ..self.fence()?.held.control.clone() };
        let before = established(&commit.from);
        let previous =
            self.live.replace(index.to_owned()).map(|index| Previous { index, checkpoint: before });
        let previous = previous.or(control.previous.clone());
        let done = Control { live: Some(index.to_owned()), next: None, previous, ..control };
        self.fence_mut()?.replace(done).await
    }

    /// Readers get another index, and all write aliases are closed, in one step that nobody but the newest owner can take.
    /// `older` ones go with it.
    pub(super) async fn exchange(&mut self, index: &str, older: &[String]) -> Result<()> {
        let name = self.names.index.clone();
        let control = self.fence()?.held.control.clone();
        let take_over = self.target.document.take_over;
        let (client, target) = (Arc::clone(&self.client), self.target.clone());
        let fence = self.fence_mut()?;
        fence.replace(Control { next: Some(index.to_owned()), ..control }).await?;
        fence.sweep().await?;
        let standing = Standing::look(&fence.client, &fence.names).await?;
        // It may have come to be while the load went on.
        refuse_taken(&fence.names, &standing, take_over)?;
        reader_aliases::refuse_names_of_others(&client, &target, &fence.names).await?;
        reader_aliases::refuse_rules_of_others(&client, &fence.names, &standing).await?;
        let mut actions: Vec<Value> = Vec::new();
        if standing.concrete {
            actions.push(json!({"remove_index": {"index": name}}));
        }
        actions
            .extend(reader_aliases::moving(&client, &target, &fence.names, &standing, index, older).await?);
        // What comes later is written through an alias that is opened then.
        fence.prepare_closing().await?;
        actions.extend(fence.closing_all(&standing, older));
        actions.extend(older.iter().map(|older| json!({"remove_index": {"index": older}})));
        let alone = BTreeSet::from([index.to_owned()]);
        let changed = fence.change(actions, |now| now.behind == alone).await;
        if changed.is_err() {
            fence.client.can_close.store(false, Ordering::Relaxed);
        }
        fence.closed_open(changed.is_ok());
        changed.map(drop)
    }

    /// A swap that was under way when its owner ended: it has happened, or it has not.
    pub(super) async fn finish_swap(&self, fence: &mut Fence, standing: &Standing) -> Result<()> {
        let control = fence.held.control.clone();
        let Some(next) = control.next.clone() else { return Ok(()) };
        let happened = standing.behind.contains(&next);
        let settled = match happened {
            false => Control { next: None, ..control },
            true => {
                let previous = control.live.clone().map(|index| Previous { index, checkpoint: None });
                Control {
                    live: Some(next),
                    next: None,
                    previous: previous.or(control.previous.clone()),
                    ..control
                }
            }
        };
        fence.replace(settled).await
    }

    /// Indexes that nobody can go back to once readers see this one.
    async fn older_than(&self, index: &str) -> Result<Vec<String>> {
        let mut older = self.created_here().await?;
        older.retain(|older| older != index && Some(older) != self.live.as_ref());
        Ok(older)
    }

    /// Indexes of loads that nobody goes on with: not the one readers see, nor the one before. Removed as aliases are
    /// changed: an owner that was taken over would take what readers see by now for one of these.
    pub(super) async fn clear_loads(&mut self) -> Result<()> {
        let Some(fence) = &self.fence else { return Ok(()) };
        let (control, names) = (&fence.held.control, &self.names);
        let previous = control.previous.as_ref().map(|previous| previous.index.as_str());
        let kept = [self.live.as_deref(), control.live.as_deref(), control.next.as_deref(), previous];
        let mut left = self.created_here().await?;
        left.retain(|index| !kept.contains(&Some(index.as_str())));
        // What readers have an alias for goes with the swap that gives them another one.
        let mut left = reader_aliases::unread(&self.client, names, left).await?;
        // Markers that came to be after nobody had waited for them any more.
        let markers =
            mark::deletable_guards(&self.client, &names.marker_pattern(), self.installation).await?;
        left.extend(markers.into_iter().filter(|index| names.is_marker(index)));
        self.fence_mut()?.remove(&left).await
    }

    /// Indexes of loads of this name that are proved to be this installation's: by their own marks or, where an older
    /// release has made them, by its control document. Where several pipelines write to it, those of this one alone.
    async fn created_here(&self) -> Result<Vec<String>> {
        let (names, control) = (&self.names, &self.fence()?.held.control);
        let marks = mark::marks(&self.client, &names.anybodys_pattern()).await?;
        let noted = [control.live.as_ref(), control.previous.as_ref().map(|previous| &previous.index)];
        let mut proved = Vec::new();
        for (index, mark) in marks {
            let is_load = match self.target.document.partial {
                true => names.is_physical(&index),
                false => names.is_vitrinas(&index),
            };
            let ours = match mark {
                Some(mark) => {
                    let is_its_own = mark.load.is_none_or(|load| Names::is_of_load(&index, load));
                    mark.installation == self.installation && is_its_own
                }
                None => names.is_physical(&index) && noted.contains(&Some(&index)),
            };
            match is_load {
                true if ours => proved.push(index),
                true if Some(&index) != self.live.as_ref() => {
                    tracing::warn!(
                        index,
                        "not proved to be of this installation: it stays, whether or not it is in use"
                    );
                }
                _ => {}
            }
        }
        Ok(proved)
    }

    pub(super) fn mark(&self, load: Option<Uuid>) -> Result<Mark> {
        Ok(Mark { installation: self.installation, pipeline: self.fence()?.lease.pipeline, load })
    }

    /// An index that was there before this load has created it.
    async fn require_own(&self, index: &str) -> Result<()> {
        match mark::of_index(&self.client, index)
            .await?
            .is_some_and(|mark| mark.installation == self.installation)
        {
            true => Ok(()),
            false => Err(lost(&format!("index {index} is there already, and not of this load"))),
        }
    }
}

/// The index must hold all that was sent: less would be a loss that readers see.
fn require_all(load: Load, found: u64) -> Result<()> {
    if found >= load.rows {
        return Ok(());
    }
    Err(lost(&format!("the index of this load holds {found} documents, and {} were sent", load.rows)))
}

/// What has the name and is not Vitrina's is replaced with consent only.
pub(super) fn refuse_taken(names: &Names, standing: &Standing, consent: bool) -> Result<()> {
    match standing.is_foreign(names) && !consent {
        true => Err(taken(names, standing)),
        false => Ok(()),
    }
}

pub(super) fn taken(names: &Names, standing: &Standing) -> Error {
    let (name, strangers) = (&names.index, standing.strangers(names).cloned().collect::<Vec<_>>());
    if standing.behind.len() > 1 && !strangers.is_empty() && strangers.len() < standing.behind.len() {
        let message = format!(
            "alias {name} is on {} too, which Vitrina has not made: readers find those documents among its own",
            strangers.join(", ")
        );
        let remove = |index: &String| json!({"remove": {"index": index, "alias": name}});
        let actions = json!({"actions": strangers.iter().map(remove).collect::<Vec<_>>()});
        return Error::fix("sink.name_taken", message).hint(format!(
            "take the alias away from there, POST _aliases {actions}, or allow the next load to do so (document: {{take_over: true}}); the index itself stays as it is"
        ));
    }
    let what = if standing.concrete { "an index" } else { "an alias" };
    let message = format!("{what} named {name} is there already, and not made by Vitrina");
    Error::fix("sink.name_taken", message).hint(
        "it was left as it is; write to another name, or allow the next load to replace it (document: {take_over: true})",
    )
}

/// The pass is dropped with this error.
fn lost(message: &str) -> Error {
    Error::fix("sink.staging_lost", message)
        .of_kind(ErrorKind::PassInvalid)
        .hint("readers see what they saw before; the next run starts the load anew")
}
