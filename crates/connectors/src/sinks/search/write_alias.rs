//! The write alias of a lease: hidden, opened before the first document of a run and closed at its end. Whatever was sent
//! through it and arrives later, from a runner that was taken over or from a network that kept a copy, is refused.
//!
//! An alias is closed by being moved to an empty index, where it is disabled for writing. So it stays closed although a
//! copy of the call that opened it arrives later: an alias of two indexes has no write index. No name is used twice.

use std::collections::BTreeSet;
use std::sync::atomic::Ordering;

use reqwest::Method;
use serde_json::{Value, json};
use vitrina_core::Result;

use super::control;
use super::fence::Fence;
use super::indexes::{self, Standing};
use super::names::{CLOSED, Names};

/// Closed aliases that are kept for a pipeline, the newest ones.
const KEPT: usize = 8;

/// The write aliases of a pipeline.
#[derive(Debug, Default)]
pub(super) struct WriteAliases {
    /// Of this lease, each with its index.
    open: BTreeSet<(String, String)>,
    /// Of earlier leases, or of this one where nobody knows whether they are closed.
    left: BTreeSet<(String, String)>,
    closed: BTreeSet<String>,
    /// Several pipelines write to the index.
    shares: bool,
}

impl WriteAliases {
    pub(super) fn new(shares: bool) -> Self {
        Self { shares, ..Self::default() }
    }
}

impl Fence {
    /// Takes note of what is there.
    pub(super) fn note_aliases(&mut self, standing: &Standing) {
        let evidence = self.names.evidence();
        let (closed, left): (BTreeSet<_>, BTreeSet<_>) = standing
            .doors
            .iter()
            .filter(|(alias, _)| *alias != evidence)
            .cloned()
            .partition(|(_, index)| index == CLOSED);
        self.aliases.closed = closed.into_iter().map(|(alias, _)| alias).collect();
        self.aliases.left = left;
    }

    /// An index was created with an alias of this lease; `known` where the server has said so.
    pub(super) fn created_with(&mut self, alias: &str, index: &str, known: bool) {
        let aliases = if known { &mut self.aliases.open } else { &mut self.aliases.left };
        aliases.insert((alias.to_owned(), index.to_owned()));
    }

    /// These indexes are gone, and their aliases with them.
    pub(super) fn removed(&mut self, indexes: &[String]) {
        self.aliases.left.retain(|(_, index)| !indexes.contains(index));
    }

    /// The alias that this lease writes to this index through. Where it has to be opened, all that others have left are
    /// closed in the same call, and the control document is read afterwards: a takeover after that will find the alias.
    pub(super) async fn write_alias(&mut self, index: &str) -> Result<String> {
        if let Some((alias, _)) = self.aliases.open.iter().find(|(_, open)| open == index) {
            return Ok(alias.clone());
        }
        let alias = self.names.write_alias(self.lease.token);
        let mut actions = self.closing(self.aliases.left.iter());
        actions.push(json!({"add": {"index": index, "alias": alias, "is_hidden": true}}));
        actions.extend(self.evidence(index));
        // It may be open though no answer says so.
        self.aliases.left.insert((alias.clone(), index.to_owned()));
        self.change_aliases(actions).await?;
        self.confirm().await?;
        self.aliases.left.clear();
        self.created_with(&alias, index, true);
        Ok(alias)
    }

    /// Those of earlier leases: nobody writes through them any more.
    pub(super) async fn close_left(&mut self) -> Result<()> {
        let actions = self.closing(self.aliases.left.iter());
        if !actions.is_empty() {
            self.change_aliases(actions).await?;
        }
        self.aliases.left.clear();
        Ok(())
    }

    /// Those of another pipeline, whose place this one has taken.
    pub(super) async fn close_all_of(&self, names: &Names) -> Result<()> {
        let (evidence, mut actions) = (names.evidence(), Vec::new());
        for (alias, index) in Standing::look(&self.client, names).await?.doors {
            if index == CLOSED {
                continue;
            }
            actions.push(json!({"remove": {"index": index, "alias": alias}}));
            if alias != evidence {
                actions.push(closed(&alias));
            }
        }
        if actions.is_empty() { Ok(()) } else { self.change_aliases(actions).await }
    }

    /// Closes all of this lease, and forgets the oldest of those that are closed.
    pub(super) async fn close_open(&self) -> Result<()> {
        let mut actions = self.closing(self.aliases.open.iter().chain(&self.aliases.left));
        if actions.is_empty() {
            return Ok(());
        }
        actions.extend(self.forgetting());
        self.change_aliases(actions).await
    }

    /// The oldest of those that are closed.
    fn forgetting(&self) -> impl Iterator<Item = Value> {
        let mut closed: Vec<&String> = self.aliases.closed.iter().collect();
        closed.sort_by_key(|alias| self.names.token_of(alias));
        let forgotten = closed.len().saturating_sub(KEPT);
        let forget = |alias: &String| json!({"remove": {"index": CLOSED, "alias": alias}});
        closed.into_iter().take(forgotten).map(forget)
    }

    /// Of `close_open`; where its answer is not known they are closed again before the next one is opened.
    pub(super) fn closed_open(&mut self, known: bool) {
        let open = std::mem::take(&mut self.aliases.open);
        match known {
            true => self.aliases.left.clear(),
            false => self.aliases.left.extend(open),
        }
    }

    /// All that are there, as a part of a call that exchanges indexes and removes those that are `gone`.
    pub(super) fn closing_all(&self, standing: &Standing, gone: &[String]) -> Vec<Value> {
        let evidence = self.names.evidence();
        let is_open = |(alias, index): &&(String, String)| {
            *alias != evidence && index != CLOSED && !gone.contains(index)
        };
        let mut actions = self.closing(standing.doors.iter().filter(is_open));
        actions.extend(self.forgetting());
        actions
    }

    fn closing<'a>(&self, aliases: impl Iterator<Item = &'a (String, String)>) -> Vec<Value> {
        let mut actions = Vec::new();
        for (alias, index) in aliases {
            actions.push(json!({"remove": {"index": index, "alias": alias}}));
            actions.push(closed(alias));
            actions.extend(self.evidence(index));
        }
        actions
    }

    /// That this pipeline has written to an index which always has the same name, whenever it is created again.
    fn evidence(&self, index: &str) -> Option<Value> {
        self.aliases.shares.then(
            || json!({"add": {"index": index, "alias": self.names.evidence(), "is_hidden": true, "is_write_index": false}}),
        )
    }

    /// As good done twice: an alias that is gone from an index is closed all the same.
    async fn change_aliases(&self, actions: Vec<Value>) -> Result<()> {
        self.prepare_closing().await?;
        let reply = self.client.call(Method::POST, "_aliases", Some(&json!({"actions": actions}))).await?;
        if reply.status.is_success() {
            return Ok(());
        }
        self.client.can_close.store(false, Ordering::Relaxed);
        Err(self.client.explain(&reply))
    }

    /// Asked once a process: somebody may have deleted it where a call fails.
    pub(super) async fn prepare_closing(&self) -> Result<()> {
        if self.client.can_close.load(Ordering::Relaxed) {
            return Ok(());
        }
        // Asked first: a server that is short of disk creates none, not even one that is there.
        if !indexes::exists(&self.client, CLOSED).await? {
            let settings =
                json!({"index": {"hidden": true, "number_of_shards": 1, "auto_expand_replicas": "0-1"}});
            let body = json!({"settings": settings, "mappings": {"dynamic": "strict"}});
            control::create_alone(&self.client, CLOSED, &body, |_| false).await?;
        }
        self.client.can_close.store(true, Ordering::Relaxed);
        Ok(())
    }
}

/// Moved to where nothing can be written.
fn closed(alias: &str) -> Value {
    json!({"add": {"index": CLOSED, "alias": alias, "is_hidden": true, "is_write_index": false}})
}
