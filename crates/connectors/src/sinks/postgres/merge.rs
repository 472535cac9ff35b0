//! Staged rows into the mart: what has vanished goes first, so that it cannot stand in the way of what comes;
//! then all that is new or differs, at once or, when a row is to blame, by halves until it is found.

use std::collections::HashSet;

use arrow_array::RecordBatch;
use vitrina_core::{Batch, Commit, Error, Outcome, Reject, Remedy, Result};

use super::PostgresSink;
use super::statements::{self, Find, REFUSED};
use super::trouble::{Tried, Trouble};
use crate::arrow_text::nullable_texts;
use crate::delivery::{OnBadRow, duplicates};
use crate::sql::literal;

/// What a merge did.
#[derive(Debug, Clone, Copy, Default)]
struct Merged {
    inserted: u64,
    updated: u64,
    /// New rows that triggers of the mart have left out.
    left_out: u64,
}

/// Rows fit a page of 8 KiB at most so often.
const PLACES_A_BLOCK: u64 = 1024;
/// Halves that are smaller than this part of the whole are looked for in the index: a join reads the whole mart for each of
/// them, and there are as many as rows are refused.
const SMALLEST_JOINED: u64 = 4;

impl PostgresSink {
    /// `staged` rows of `from` into the mart.
    pub(super) async fn merge(
        &mut self,
        from: &str,
        find: Find,
        staged: u64,
        on_bad_row: OnBadRow,
        outcome: &mut Outcome,
    ) -> Tried<()> {
        let before = outcome.rejects.len();
        let merged = match on_bad_row {
            OnBadRow::FailBatch => self.merge_all(from, find, "").await?,
            OnBadRow::Reject => self.merge_by_halves(from, find, outcome).await?,
        };
        if let Some(delete) = statements::delete_empty(&self.mart, self.shape()?, from) {
            self.count_of(&delete).await?;
        }
        let refused = (outcome.rejects.len() - before) as u64;
        outcome.counts.inserted += merged.inserted;
        outcome.counts.updated += merged.updated;
        let arrived = merged.inserted + merged.updated + merged.left_out + refused;
        outcome.counts.unchanged += staged.saturating_sub(arrived);
        self.tell_left_out(merged.left_out);
        Ok(())
    }

    async fn merge_all(&self, from: &str, find: Find, condition: &str) -> Tried<Merged> {
        let shape = self.shape()?;
        let new = match self.mart.partitioned || self.mart.has_triggers {
            true => Some(self.figure(&statements::count_new(&self.mart, shape, from, condition)).await?),
            false => None,
        };
        let sql = statements::merge(&self.mart, shape, from, find, condition);
        let answer = self.session.client.query_one(&sql, &[]).await;
        let row = answer.map_err(|error| Trouble::of(&self.session, error))?;
        let figure = |place: usize| row.get::<_, i64>(place).unsigned_abs();
        Ok(match new {
            Some(new) if self.mart.partitioned => {
                let left_out = if self.mart.has_triggers { new.saturating_sub(figure(0)) } else { 0 };
                Merged { inserted: new.min(figure(0)), updated: figure(0).saturating_sub(new), left_out }
            }
            new => {
                let left_out = new.unwrap_or(0).saturating_sub(figure(0));
                Merged { inserted: figure(0), updated: figure(1), left_out }
            }
        })
    }

    /// They count as neither written nor unchanged.
    pub(super) fn tell_left_out(&self, rows: u64) {
        if rows > 0 {
            tracing::warn!(rows, target = %self.mart.name, "triggers of the mart have left out new rows");
        }
    }

    /// Halves the staging by where its rows lie. What is refused stays there, so that its key is not taken
    /// for vanished.
    async fn merge_by_halves(&mut self, from: &str, find: Find, outcome: &mut Outcome) -> Tried<Merged> {
        let size = format!("select pg_relation_size({}::regclass)", literal(from));
        let blocks = self.figure(&format!("{size} / current_setting('block_size')::bigint")).await?;
        let mut merged = Merged::default();
        let mut halves = vec![(0, blocks * PLACES_A_BLOCK)];
        while let Some((first, end)) = halves.pop() {
            let condition = format!(" and s.ctid >= '{}' and s.ctid < '{}'", place(first), place(end));
            let is_small = (end - first) * SMALLEST_JOINED < blocks * PLACES_A_BLOCK;
            let find = if is_small { Find::ByKey } else { find };
            let enter = if find == Find::ByKey { statements::BY_INDEX } else { statements::HALF };
            self.session.run(enter).await?;
            match self.merge_all(from, find, &condition).await {
                Ok(half) => {
                    self.session.run("release half").await?;
                    merged.inserted += half.inserted;
                    merged.updated += half.updated;
                    merged.left_out += half.left_out;
                }
                Err(Trouble::Row(row)) => {
                    self.session.run(statements::UNDO_HALF).await?;
                    let middle = first + (end - first) / 2;
                    match end - first {
                        1 => {
                            self.reject_staged(from, &[place(first)], row.code, &row.message, outcome)
                                .await?;
                        }
                        _ => halves.extend([(middle, end), (first, middle)]),
                    }
                    self.rejects.stop_beyond_limit(outcome)?;
                }
                Err(other) => return Err(other),
            }
        }
        self.session.run(statements::BY_ANY_PLAN).await?;
        Ok(merged)
    }

    /// Deletes, by the second statement where there are open rejects whose keys it must spare, and holds the limit.
    pub(super) async fn delete(
        &mut self,
        [plain, sparing]: [Vec<String>; 2],
        commit: &Commit,
        outcome: &mut Outcome,
    ) -> Tried<()> {
        let refused = self.rejects.keys(outcome);
        let delete = match refused.is_empty() {
            true => plain,
            false => {
                let refused: Vec<Vec<Option<String>>> =
                    refused.into_iter().map(|key| key.into_iter().map(Some).collect()).collect();
                self.fill_keys(REFUSED, &self.mart.key, &refused).await?;
                sparing
            }
        };
        for statement in &delete {
            outcome.counts.deleted += self.count_of(statement).await?;
        }
        Ok(self.hold_delete_limit(commit, outcome.counts.deleted).await?)
    }

    /// Keys into a temporary table with the mart's types. What they cannot hold is in no mart.
    pub(super) async fn fill_keys(
        &self,
        table: &str,
        columns: &[String],
        keys: &[Vec<Option<String>>],
    ) -> Result<()> {
        let names: Vec<&str> = columns.iter().map(String::as_str).collect();
        self.session.run(&statements::create_keys(&self.mart, table, &names)).await?;
        let row = |key: &Vec<Option<String>>| {
            let value = |text: &Option<String>| text.as_deref().map_or_else(|| "null".to_owned(), literal);
            let values = key.iter().map(value).collect::<Vec<_>>();
            format!("({})", values.join(", "))
        };
        let insert = |rows: &str| statements::insert_keys(&self.mart, table, &names, rows);
        let all = keys.iter().map(row).collect::<Vec<_>>().join(", ");
        self.session.run("savepoint keys").await?;
        if self.session.run(&insert(&all)).await.is_ok() {
            return self.session.run("release keys").await;
        }
        self.session.run("rollback to keys; release keys").await?;
        for key in keys {
            self.session.run("savepoint keys").await?;
            let end = match self.session.run(&insert(&row(key))).await {
                Ok(()) => "release keys",
                // The types of the mart cannot hold it. Whatever else is wrong says nothing of the key.
                Err(error) if error.remedy == Remedy::FixConfiguration => "rollback to keys; release keys",
                Err(error) => return Err(error),
            };
            self.session.run(end).await?;
        }
        Ok(())
    }

    /// A change key that is the whole key and came back has nothing to delete, and most do come back.
    pub(super) fn scope_keys(&self, batch: &Batch, keys: &RecordBatch) -> Result<Vec<Vec<Option<String>>>> {
        let columns: Vec<String> = keys.schema().fields().iter().map(|field| field.name().clone()).collect();
        let came_back = match columns == self.mart.key {
            true => self.keys_of(&batch.rows, &columns)?.into_iter().collect(),
            false => HashSet::new(),
        };
        let mut in_scope = self.keys_of(keys, &columns)?;
        in_scope.retain(|key| !came_back.contains(key));
        Ok(in_scope)
    }

    /// Keys of rows as texts. A NULL in the mart's key is in no mart; elsewhere it is a value like others.
    fn keys_of(&self, rows: &RecordBatch, columns: &[String]) -> Result<Vec<Vec<Option<String>>>> {
        let keys = (0..rows.num_rows()).map(|row| nullable_texts(rows, columns, row));
        let mut keys: Vec<Vec<Option<String>>> = keys.collect::<Result<_>>()?;
        let is_key: Vec<bool> = columns.iter().map(|name| self.mart.is_key(name)).collect();
        keys.retain(|key| key.iter().zip(&is_key).all(|(part, is_key)| part.is_some() || !is_key));
        Ok(keys)
    }

    /// Keys that are equal only to the database. Where bytes tell, the batch has been looked through already.
    pub(super) async fn reject_duplicates(
        &self,
        from: &str,
        on_bad_row: OnBadRow,
        outcome: &mut Outcome,
    ) -> Tried<u64> {
        let shape = self.shape()?;
        if on_bad_row == OnBadRow::FailBatch && shape.has_plain_key(&self.mart) {
            return Ok(0);
        }
        let groups =
            self.session.client.query(&statements::duplicate_keys(&self.mart, shape, from), &[]).await;
        let groups = groups.map_err(|error| Trouble::of(&self.session, error))?;
        let mut removed = 0;
        for group in groups {
            let places: Vec<String> = group.get(0);
            let message = duplicates::message(places.len(), &self.mart.key);
            self.reject_staged(from, &places[..1], duplicates::CODE, &message, outcome).await?;
            removed += self.count_of(&statements::delete_places(from, &places)).await?;
        }
        Ok(removed)
    }

    /// Staged rows as rejects, by where they lie.
    async fn reject_staged(
        &self,
        from: &str,
        places: &[String],
        code: &str,
        message: &str,
        outcome: &mut Outcome,
    ) -> Result<()> {
        let sql = statements::staged_rows(&self.mart, self.shape()?, from, places);
        let rows = self.session.client.query(&sql, &[]).await.map_err(|error| self.session.explain(error))?;
        for row in rows {
            let json = |place| serde_json::from_str(row.get(place));
            let unreadable = |error: serde_json::Error| Error::defect("sink.reject", &error);
            let (key, row) = (json(0).map_err(unreadable)?, json(1).map_err(unreadable)?);
            let (code, message) = (code.to_owned(), message.to_owned());
            outcome.rejects.push(Reject { key, code, message, row });
        }
        Ok(())
    }
}

fn place(number: u64) -> String {
    format!("({},{})", number / PLACES_A_BLOCK, number % PLACES_A_BLOCK)
}
