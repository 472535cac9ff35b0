//! Rows of the query by their change keys. What is asked for and does not come back has left the source.

use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::Arc;

use arrow_array::{ArrayRef, RecordBatch, StringArray, UInt64Array};
use arrow_schema::{DataType, Field, Schema};
use arrow_select::concat::concat_batches;
use arrow_select::take::take_record_batch;
use vitrina_core::{Batch, Error, Pipeline, Position, Reject, Result, Scope};

use super::dirty::Dirty;
use super::reader::Reader;
use crate::arrow_text::nullable_texts;
use crate::delivery::duplicates;
use crate::rejects::{without_flawed, without_null_keys};
use crate::sql::{OrderedColumn, expressions, identifier};

/// A batch that brings nothing and leads nowhere yet.
pub(super) fn nothing(reader: &Reader, from: &Position) -> Batch {
    Batch {
        rows: RecordBatch::new_empty(reader.schema.clone()),
        columns_unknown: false,
        scope: Scope::Nothing,
        rejected: Vec::new(),
        from: from.clone(),
        to: None,
        backfilled_to: None,
        rows_read: 0,
    }
}

/// One text a key column, NULL being `None`.
pub(super) type Key = Vec<Option<String>>;

pub(super) struct Recompute {
    change_key: Vec<OrderedColumn>,
    /// The equality of each: that of a type which an extension has brought, citext say, is not the one that a bare `=` finds.
    equals: Vec<String>,
    /// The target's key, by which rejects are named.
    key: Vec<String>,
    /// Keys to read with one query, fewer if their rows are large. Those of two batches: while they are read the
    /// sink writes one, and with more it would wait. Small batches share a query, which has a price of its own.
    pub(super) step: usize,
    batch_size: usize,
    /// Of several rows of one key the last by the cursor counts: it comes last.
    newest_last: String,
    /// Other ways to write a key, by the key as the source writes it: the scope has them beside it.
    spelled: HashMap<Key, Vec<Key>>,
    /// A source sorts whole rows for that, and most queries return one a key: it is asked to once it has returned several.
    in_order: bool,
}

/// Of several rows of one key the last by the cursor counts, as far as the query returns the cursor: its id may be the
/// driving table's alone.
pub(crate) fn newest_last(pipeline: &Pipeline, reader: &Reader) -> String {
    let names = [&pipeline.incremental_key, &pipeline.incremental_id_key];
    let returned = |name: &Option<String>| reader.ordered(name.as_deref()?, "cursor").ok();
    expressions(&names.into_iter().map_while(returned).collect::<Vec<_>>(), "q")
}

/// All rows of some change keys.
pub(super) struct Recomputed {
    /// How many of the keys it covers.
    pub(super) keys: usize,
    pub(super) rows: RecordBatch,
    pub(super) rejected: Vec<Reject>,
    pub(super) scope: Scope,
}

impl Recomputed {
    pub(super) fn batch(self, nothing: Batch) -> Batch {
        let rows_read = (self.rows.num_rows() + self.rejected.len()) as u64;
        Batch { rows: self.rows, scope: self.scope, rejected: self.rejected, rows_read, ..nothing }
    }
}

impl Recompute {
    pub(super) async fn new(
        change_key: &[String],
        key: &[String],
        reader: &Reader,
        pipeline: &Pipeline,
    ) -> Result<Self> {
        let equals = equalities(change_key, reader).await?;
        let ordered = change_key.iter().map(|name| reader.ordered(name, "change key"));
        let order = newest_last(pipeline, reader);
        let newest_last = if order.is_empty() { String::new() } else { format!(" order by {order}") };
        let in_order = !pipeline.transforms().is_empty() || !tells_keys_apart(key, reader);
        let (change_key, key) = (ordered.collect::<Result<_>>()?, key.to_vec());
        let batch_size = reader.batch_size;
        let step = (2 * batch_size).max(1000.min(10 * batch_size));
        Ok(Self { change_key, equals, key, step, batch_size, newest_last, in_order, spelled: HashMap::new() })
    }

    pub(super) fn columns(&self) -> &[OrderedColumn] {
        &self.change_key
    }

    /// Keys as people write them, each once and as the source writes it. Where only the source can tell whether two are
    /// spellings of one key, what is read together stays one batch: its row comes back under one spelling, and alone in
    /// its batch the other would stand for a row that is gone. The target may have something under
    /// each of them: the scope keeps them all.
    pub(super) fn take_spelled(&mut self, keys: Vec<Key>) -> VecDeque<Dirty> {
        let canonical = |key: &Key| {
            let part = |(column, text): (&OrderedColumn, &Option<String>)| match text {
                Some(text) => column.canonical(text).map(Some),
                None => Some(None),
            };
            self.change_key.iter().zip(key).map(part).collect::<Option<Key>>()
        };
        let written: Option<Vec<Key>> = keys.iter().map(canonical).collect();
        if written.is_none() {
            self.batch_size = self.step;
        }
        if let Some(written) = &written {
            let other = written.iter().zip(&keys).filter(|(written, typed)| written != typed);
            for (written, typed) in other {
                self.spelled.entry(written.clone()).or_default().push(typed.clone());
            }
        }
        let mut seen = HashSet::new();
        let mut keys = written.unwrap_or(keys);
        keys.retain(|key| seen.insert(key.clone()));
        keys.into_iter().map(|key| Dirty { key, at: None }).collect()
    }

    /// Of the first keys, in batches: fewer of them than were asked for if their rows are large.
    pub(super) async fn read(&mut self, keys: &[Key], reader: &mut Reader) -> Result<VecDeque<Recomputed>> {
        loop {
            let some = &keys[..keys.len().min(self.step)];
            let mut rejected = Vec::new();
            if let Some(rows) = self.whole(some, reader, &mut rejected).await? {
                let needs_order = !self.in_order && !self.newest_last.is_empty();
                if needs_order && !duplicates::are_distinct(&rows, &self.key)? {
                    self.in_order = true;
                    continue;
                }
                return self.in_batches(some, &rows, rejected);
            }
            // More bytes than a batch may have: fewer keys at a time, on a session that is not in the middle of them.
            self.step = (self.step / 2).max(1);
            reader.reconnect().await?;
        }
    }

    /// The rows of one key stay together. Where only the source can tell which those are (citext, say), all of
    /// them do.
    fn in_batches(
        &self,
        keys: &[Key],
        rows: &RecordBatch,
        mut rejected: Vec<Reject>,
    ) -> Result<VecDeque<Recomputed>> {
        let mut batches = VecDeque::new();
        let Some(places) = self.sort_out(keys, rows)? else {
            let (rows, scope) = (rows.clone(), Scope::Keys(self.scope(keys)?));
            batches.push_back(Recomputed { keys: keys.len(), rows, rejected, scope });
            return Ok(batches);
        };
        for (chunk, places) in keys.chunks(self.batch_size).zip(places) {
            let (rows, scope) = (taken(rows, &places)?, Scope::Keys(self.scope(chunk)?));
            let rejected = std::mem::take(&mut rejected);
            batches.push_back(Recomputed { keys: chunk.len(), rows, rejected, scope });
        }
        Ok(batches)
    }

    /// Which rows belong to the keys of each batch; `None` where there is one batch only: a key without a row may be
    /// another spelling of one that has come, and alone in its batch it would stand for a row that is gone.
    fn sort_out(&self, keys: &[Key], rows: &RecordBatch) -> Result<Option<Vec<Vec<u64>>>> {
        if keys.len() <= self.batch_size {
            return Ok(None);
        }
        let names: Vec<String> = self.change_key.iter().map(|column| column.name.clone()).collect();
        let home: HashMap<&Key, usize> =
            keys.iter().enumerate().map(|(place, key)| (key, place / self.batch_size)).collect();
        let mut places = vec![Vec::new(); keys.len().div_ceil(self.batch_size)];
        let mut came = HashSet::new();
        for row in 0..rows.num_rows() {
            let key = nullable_texts(rows, &names, row)?;
            let Some((key, batch)) = home.get_key_value(&key) else { return Ok(None) };
            places[*batch].push(row as u64);
            came.insert(*key);
        }
        let have_one_spelling = self.change_key.iter().all(OrderedColumn::has_one_spelling);
        Ok((have_one_spelling || came.len() == home.len()).then_some(places))
    }

    /// All rows of the keys: their scope is one. `None` if they are too large to be held at once.
    async fn whole(
        &self,
        keys: &[Key],
        reader: &Reader,
        rejected: &mut Vec<Reject>,
    ) -> Result<Option<RecordBatch>> {
        let mut page = reader.page(&self.tail(keys)).await?;
        let mut pieces = Vec::new();
        loop {
            let mut piece = page.next(reader, usize::MAX).await?;
            without_flawed(&mut piece.rows, rejected, &piece.flawed, &self.key)?;
            without_null_keys(&mut piece.rows, rejected, &self.key)?;
            pieces.push(piece.rows);
            if piece.ends_page {
                break;
            }
            if keys.len() > 1 {
                return Ok(None);
            }
        }
        let rows = concat_batches(&reader.schema, &pieces);
        rows.map(Some).map_err(|error| Error::defect("source.rows", &error))
    }

    /// As a list of values an index can serve; a key with a NULL in it has a condition of its own.
    fn tail(&self, keys: &[Key]) -> String {
        let columns = self.change_key.iter().map(|column| format!("q.{}", identifier(&column.name)));
        let columns = columns.collect::<Vec<_>>().join(", ");
        let (whole, with_null): (Vec<&Key>, Vec<&Key>) =
            keys.iter().partition(|key| key.iter().all(Option::is_some));
        let mut conditions: Vec<String> = with_null.iter().map(|key| self.same(key)).collect();
        match self.change_key.as_slice() {
            _ if whole.is_empty() => {}
            // One literal is read faster than a thousand.
            [column] if !column.is_array() => {
                let values = whole.iter().filter_map(|key| key[0].as_deref());
                conditions.push(format!("{columns} {} any ({})", self.equals[0], column.values(values)));
            }
            _ if self.equals.iter().any(|equals| equals != EQUALS) => {
                conditions.extend(whole.iter().map(|key| self.same(key)));
            }
            _ => {
                let rows = whole.iter().map(|key| format!("({})", self.values(key))).collect::<Vec<_>>();
                conditions.push(format!("({columns}) in ({})", rows.join(", ")));
            }
        }
        let order = if self.in_order { &self.newest_last } else { "" };
        format!("where {}{order}", conditions.join(" or "))
    }

    fn values(&self, key: &Key) -> String {
        let value = |(column, text): (&OrderedColumn, &Option<String>)| {
            text.as_deref().map_or_else(|| "null".to_owned(), |text| column.value(text))
        };
        self.change_key.iter().zip(key).map(value).collect::<Vec<_>>().join(", ")
    }

    fn same(&self, key: &Key) -> String {
        let same = |((column, equals), text): ((&OrderedColumn, &String), &Option<String>)| match text {
            Some(text) => format!("q.{} {equals} {}", identifier(&column.name), column.value(text)),
            None => format!("q.{} is null", identifier(&column.name)),
        };
        let all = self.change_key.iter().zip(&self.equals).zip(key).map(same).collect::<Vec<_>>();
        format!("({})", all.join(" and "))
    }

    pub(super) fn scope(&self, keys: &[Key]) -> Result<RecordBatch> {
        let spelled = keys.iter().filter_map(|key| self.spelled.get(key)).flatten();
        let keys: Vec<&Key> = keys.iter().chain(spelled).collect();
        let field = |column: &OrderedColumn| Field::new(&column.name, DataType::Utf8, true);
        let schema = Schema::new(self.change_key.iter().map(field).collect::<Vec<_>>());
        let column = |place: usize| {
            let texts: StringArray = keys.iter().map(|key| key[place].as_deref()).collect();
            Arc::new(texts) as ArrayRef
        };
        let columns = (0..self.change_key.len()).map(column).collect();
        RecordBatch::try_new(Arc::new(schema), columns).map_err(|error| Error::defect("source.scope", &error))
    }
}

const EQUALS: &str = "=";
/// The oids of types that every server has are smaller.
const FIRST_OF_USERS: u32 = 16384;

async fn equalities(change_key: &[String], reader: &Reader) -> Result<Vec<String>> {
    let sql = "select format('operator(%I.%s)', n.nspname, o.oprname)
                 from pg_catalog.pg_opclass c join pg_catalog.pg_am h on h.oid = c.opcmethod and h.amname = 'btree'
                 join pg_catalog.pg_amop m on m.amopfamily = c.opcfamily and m.amopstrategy = 3
                                          and m.amoplefttype = c.opcintype and m.amoprighttype = c.opcintype
                 join pg_catalog.pg_operator o on o.oid = m.amopopr join pg_catalog.pg_namespace n on n.oid = o.oprnamespace
                where c.opcintype = $1 and c.opcdefault";
    let mut equals = vec![EQUALS.to_owned(); change_key.len()];
    for (name, equals) in change_key.iter().zip(&mut equals) {
        let type_oid = reader.column(name, "change key")?.type_oid;
        if type_oid >= FIRST_OF_USERS
            && let Some(own) = reader.rows_with(sql, &[&type_oid]).await?.first()
        {
            *equals = own.get(0);
        }
    }
    Ok(equals)
}

/// The bytes of such a key say whether it is the same, to the source and to any target.
fn tells_keys_apart(key: &[String], reader: &Reader) -> bool {
    key.iter().all(|name| reader.column(name, "key").is_ok_and(|column| is_number_or_uuid(column.type_oid)))
}

const fn is_number_or_uuid(oid: u32) -> bool {
    matches!(oid, 20 | 21 | 23 | 2950)
}

fn taken(rows: &RecordBatch, places: &[u64]) -> Result<RecordBatch> {
    let places = UInt64Array::from(places.to_vec());
    take_record_batch(rows, &places).map_err(|error| Error::defect("source.rows", &error))
}
