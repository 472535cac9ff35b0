//! An index beside the rows of its pipeline, as documents. The index adds up the checksums that its documents carry, which
//! proves what was written; to prove what is there, at level `rows`, its documents are read, and only sums of their hashes held.

mod form;
mod index;

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use arrow_array::RecordBatch;
use arrow_schema::SchemaRef;
use async_trait::async_trait;
use uuid::Uuid;
use vitrina_core::{Error, ErrorKind, Figures, Level, PipelineId, Result, SideFigures, TargetName};

use super::checksum::{self, BUCKETS, Checksum, bucket};
use super::document::{self, Documents, id, id_of_row};
use super::indexes::{Standing, unread};
use super::load::taken;
use super::made::Made;
use super::names::Names;
use super::versions::token;
use super::{Client, index as index_name, indexes, key, load_settings, mapping, numbers, require_key};
use crate::arrow_text::texts;
use crate::delivery::duplicates;
use crate::reconcile::{Differing, Key, Mark, Order, Pair, Portion, Row, Seen, Stream, Wanted, no_key};
use crate::sinks::newest_last;
use crate::sources::postgres::keeps_keys;
use form::{Cells, Document, Fields, text, texts_of};
use index::{Index, Visit};

/// Documents that are read one by one at a time.
const ROWS_AT_ONCE: u64 = 100_000;

struct SearchPair<'a> {
    order: &'a Order<'a>,
    client: Arc<Client>,
    /// What readers search.
    name: String,
    /// The index behind that: a filter of an alias hides nothing here.
    behind: String,
    /// Nothing has been written yet.
    is_missing: bool,
    key: Vec<String>,
    /// Columns that documents are found by.
    exact: Vec<String>,
    newest_last: Option<Vec<String>>,
    fields: Fields,
    names: Vec<String>,
    /// By the checksums that documents carry, else by their values.
    by_checksum: bool,
    /// Documents hold numbers of keys in their shortest form.
    short_numbers: bool,
    /// Buckets that differ and have not been read yet, with their rows.
    left: Vec<(u16, u64)>,
    /// So many documents are in no bucket, and have not been read yet.
    strangers: u64,
    /// Their keys, once they have been read: other buckets may tell of the same.
    known: HashSet<Key>,
    done: u64,
    portion: Portion,
    /// Rows of the source that make no document.
    refused: AtomicU64,
}

/// What was counted in a bucket.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Sum {
    rows: u64,
    /// Of the halves of hashes, as a server can add them up.
    low: u64,
    high: u64,
}

type Sums = Vec<Sum>;

pub(super) async fn open<'a>(name: &TargetName, order: &'a Order<'a>) -> Result<Box<dyn Pair + 'a>> {
    let client = Client::of(order.connections.get(&order.target.connection)?)?;
    let key = key(order.target)?;
    let schema = columns(order, &key).await?;
    require_key(order.target, &key, &schema)?;
    let fields = Fields::new(schema.fields().iter().map(|field| field.name()), &order.target.document, &key);
    let returns = |column: &String| schema.field_with_name(column).is_ok();
    let name = index_name(name).to_owned();
    refuse_several(&client, &name).await?;
    let made = Made::look(&client, &name).await?.unwrap_or_default();
    let by_checksum = order.level == Level::Hash
        && order.keys.is_none()
        && checksum::is_wanted(order.target)
        && made.checksum
        && !load_settings::alters_documents(&client, &name).await?;
    Ok(Box::new(SearchPair {
        by_checksum,
        short_numbers: made.short_numbers,
        is_missing: true,
        behind: name.clone(),
        client,
        name,
        exact: [key.clone(), order.pipeline.change_key.clone()].concat(),
        key,
        newest_last: newest_last(order.pipeline, returns),
        names: fields.names(),
        fields,
        order,
        left: Vec::new(),
        strangers: 0,
        known: HashSet::new(),
        done: 0,
        portion: Portion::default(),
        refused: AtomicU64::default(),
    }))
}

/// What readers find under a name that others have put indexes of theirs under is no longer one index.
async fn refuse_several(client: &Client, name: &str) -> Result<()> {
    let names = Names::new(name, PipelineId(Uuid::nil()));
    let standing = Standing::look(client, &names).await?;
    if standing.behind.len() > 1 { Err(taken(&names, &standing)) } else { Ok(()) }
}

/// Known before the rows, or seen in the first of them.
async fn columns(order: &Order<'_>, key: &[String]) -> Result<SchemaRef> {
    let mut stream = Stream::open(order, key, Wanted::All).await?;
    if let Some(schema) = stream.schema() {
        return Ok(schema);
    }
    while let Some(rows) = stream.next().await? {
        if rows.num_rows() > 0 {
            return Ok(rows.schema());
        }
    }
    let message = "the pipeline returns no rows, and nobody knows which columns they would have";
    Err(Error::fix("reconcile.no_columns", message).hint("declare the columns that its functions return"))
}

#[async_trait]
impl Pair for SearchPair<'_> {
    fn key(&self) -> &[String] {
        &self.key
    }

    fn columns(&self) -> &[String] {
        &self.names
    }

    fn takes_ids(&self) -> bool {
        true
    }

    fn at_once(&self) -> usize {
        if Stream::takes_keys(self.order) { self.portion.rows() } else { usize::MAX }
    }

    async fn count(&mut self) -> Result<(SideFigures, SideFigures)> {
        self.look().await?;
        self.index().refresh().await?;
        let now = jiff::Timestamp::now();
        let (target, source) = tokio::try_join!(self.count_index(), self.count_source())?;
        let mut figures = (target, source);
        // What only one side can tell cannot be compared.
        figures.1.min.retain(|column, _| figures.0.min.contains_key(column));
        figures.1.max.retain(|column, _| figures.0.max.contains_key(column));
        (figures.0.as_of, figures.1.as_of) = (Some(now), Some(now));
        Ok(figures)
    }

    async fn scan(&mut self, figures: &mut Figures) -> Result<()> {
        self.look().await?;
        self.index().refresh().await?;
        (figures.target.as_of, figures.source.as_of) =
            (Some(jiff::Timestamp::now()), Some(jiff::Timestamp::now()));
        let ((target, strangers), source) = tokio::try_join!(self.sum_index(), self.sum_source())?;
        let rows = |sums: &Sums| sums.iter().map(|sum| sum.rows).sum::<u64>();
        (figures.target.rows, figures.source.rows) = (rows(&target) + strangers, rows(&source));
        let differing = |bucket: u16| {
            let (target, source) = (target[usize::from(bucket)], source[usize::from(bucket)]);
            (target != source).then(|| (bucket, target.rows + source.rows))
        };
        self.left = (0..BUCKETS).filter_map(differing).collect();
        // Documents that are in no bucket are looked at as one more.
        (self.strangers, self.done) = (strangers, 0);
        self.known.clear();
        figures.ranges = BUCKETS.into();
        figures.differing_ranges = self.left.len() as u64 + u64::from(strangers > 0);
        figures.as_written = self.by_checksum;
        Ok(())
    }

    fn refused(&self) -> u64 {
        self.refused.load(Ordering::Relaxed)
    }

    /// Both sides are read once more, and only these buckets are held.
    async fn differing(&mut self) -> Result<Option<Differing>> {
        self.look().await?;
        let mut wanted = vec![false; usize::from(BUCKETS)];
        let mut rows = std::mem::take(&mut self.strangers);
        let strangers = rows > 0;
        self.done += u64::from(strangers);
        while let Some((bucket, more)) =
            self.left.pop_if(|(_, more)| rows == 0 || rows + *more <= ROWS_AT_ONCE)
        {
            wanted[usize::from(bucket)] = true;
            rows += more;
            self.done += 1;
        }
        if rows == 0 {
            return Ok(None);
        }
        let (target, source) =
            tokio::try_join!(self.hash_index(&wanted, strangers), self.hash_source(&wanted))?;
        let mut keys = self.differing_keys(&target, source);
        keys.retain(|key| !self.known.contains(key));
        if strangers {
            self.known.extend(keys.iter().cloned());
        }
        Ok(Some(Differing { keys, done: self.done, rows_read: rows }))
    }

    async fn rows(&mut self, keys: &[Key]) -> Result<Vec<Row>> {
        self.look().await?;
        let ids: Vec<String> = keys.iter().filter_map(|key| id(key).ok()).collect();
        let mut found = HashMap::new();
        for some in ids.chunks(1000) {
            found.extend(self.index().of_ids(some).await?);
        }
        let mut target: HashMap<Key, Document> = HashMap::new();
        for key in keys {
            if let Some(document) = id(key).ok().and_then(|id| found.remove(&id)) {
                target.insert(key.clone(), document);
            }
        }
        let mut misplaced = self.index().misplaced(&ids).await?;
        let mut source = self.source_of(keys).await?;
        let mut row = |key: &Key| {
            let source = source.remove(key).and_then(|document| self.fields.values(document));
            let target = target.remove(key).and_then(|document| self.fields.values(document));
            let elsewhere = id(key).ok().and_then(|id| misplaced.remove(&id)).unwrap_or_default();
            let elsewhere = Elsewhere::of(elsewhere, &self.fields);
            let (said, target) = (elsewhere.said(target.is_some()), target.or(elsewhere.first));
            let (source, mut target) = texts_of(source, target);
            if let Some(others) = target.as_mut().and_then(|values| values.last_mut()) {
                *others = said.or(others.take());
            }
            Row { key: key.clone(), source, target }
        };
        let rows: Vec<Row> = keys.iter().map(&mut row).collect();
        self.portion.note(&rows);
        Ok(rows)
    }

    async fn row(&mut self, key: &Key) -> Result<Seen> {
        let (read, can_be) = match self.as_read(key).await {
            Err(error) if error.kind == ErrorKind::KeyInvalid => (None, false),
            read => (read?, true),
        };
        let known = read.as_ref().map_or(key, |(known, _)| known);
        let rows = self.rows(std::slice::from_ref(known)).await?;
        let mut row = rows.into_iter().next().ok_or_else(unread)?;
        if !can_be && row.target.is_none() {
            return Err(no_key(&self.key));
        }
        let fits = read.is_none() || row.source.is_some();
        if let Some((_, values)) = read.filter(|_| !fits) {
            row.source = Some(values);
        }
        Ok(Seen { row, fits })
    }

    async fn mark(&mut self, key: &Key) -> Result<Option<Mark>> {
        let Ok(id) = id(key) else { return Ok(None) };
        let versions = indexes::versions(&self.client, &self.behind, std::slice::from_ref(&id)).await?;
        // Versions of documents that several pipelines share are the server's own.
        let token = versions.get(&id).copied().and_then(token);
        Ok(token.map(Mark::Token))
    }
}

impl SearchPair<'_> {
    /// The row of a key at the source, under its key as the source writes it, also where no document can be made of it.
    async fn as_read(&self, key: &Key) -> Result<Option<(Key, Vec<Option<String>>)>> {
        if key.len() != self.key.len() {
            return Ok(None);
        }
        let takes_keys = Stream::takes_keys(self.order);
        let wanted = if takes_keys { Wanted::Typed(key) } else { Wanted::All };
        let mut stream = Stream::open(self.order, &self.key, wanted).await?;
        let mut found = None;
        while let Some(rows) = stream.next().await? {
            let rows = self.fitting(rows)?;
            for row in 0..rows.num_rows() {
                let known = texts(&rows, &self.key, row)?;
                if takes_keys || known == *key {
                    found = Some((known, self.fields.texts(&rows, row)?));
                }
            }
        }
        Ok(found)
    }

    /// An index may come to be while it is compared.
    async fn look(&mut self) -> Result<()> {
        let behind = indexes::behind(&self.client, &self.name).await?;
        self.is_missing = behind.is_none();
        self.behind = behind.unwrap_or_else(|| self.name.clone());
        refuse_several(&self.client, &self.name).await
    }

    fn index(&self) -> Index<'_> {
        Index { client: &self.client, name: &self.behind, is_missing: self.is_missing }
    }

    /// And how many documents are in no bucket.
    async fn sum_index(&self) -> Result<(Sums, u64)> {
        if self.by_checksum {
            return self.index().sums().await;
        }
        let mut sums = vec![Sum::default(); usize::from(BUCKETS)];
        self.index()
            .each(|seen| match seen {
                Visit::Begin => sums.fill(Sum::default()),
                Visit::Document { id, document, is_routed } => {
                    if let Some(hash) = self.fields.hash(document) {
                        // One that lies elsewhere is not the one that is meant, whatever it says.
                        sums[usize::from(bucket(id))].add(hash ^ u64::from(is_routed));
                    }
                }
            })
            .await?;
        Ok((sums, 0))
    }

    async fn sum_source(&self) -> Result<Sums> {
        let mut sums = vec![Sum::default(); usize::from(BUCKETS)];
        self.each_hash(|_, id, hash| sums[usize::from(bucket(id))].add(hash)).await?;
        Ok(sums)
    }

    /// `None` for a document that carries no checksum, that lies under another routing, or that is one of several.
    async fn hash_index(&self, wanted: &[bool], strangers: bool) -> Result<HashMap<String, Option<u64>>> {
        let mut hashes = HashMap::new();
        if self.by_checksum {
            let buckets: Vec<u16> = (0..BUCKETS).filter(|bucket| wanted[usize::from(*bucket)]).collect();
            let mut visit = |id: &str, hash| note(&mut hashes, id, hash);
            self.index().each_checksum(&buckets, strangers, &mut visit).await?;
            return Ok(hashes);
        }
        self.index()
            .each(|seen| match seen {
                Visit::Begin => hashes.clear(),
                Visit::Document { id, document, is_routed } => {
                    if wanted[usize::from(bucket(id))]
                        && let Some(hash) = self.fields.hash(document)
                    {
                        note(&mut hashes, id, Some(hash).filter(|_| !is_routed));
                    }
                }
            })
            .await?;
        Ok(hashes)
    }

    async fn hash_source(&self, wanted: &[bool]) -> Result<HashMap<String, (Key, u64)>> {
        let mut hashes = HashMap::new();
        self.each_hash(|key, id, hash| {
            if wanted[usize::from(bucket(id))] {
                hashes.insert(id.to_owned(), (key.clone(), hash));
            }
        })
        .await?;
        Ok(hashes)
    }

    /// Every row that becomes a document, with the hash that its document should have.
    async fn each_hash(&self, mut visit: impl FnMut(&Key, &str, u64) + Send) -> Result<()> {
        self.each_row(Wanted::All, |key, id, bytes| {
            let hash = match self.by_checksum {
                true => Some(Checksum::of(id, bytes).hash),
                false => self.fields.hash(parsed(bytes)?),
            };
            if let Some(hash) = hash {
                visit(key, id, hash);
            }
            Ok(())
        })
        .await
    }

    fn differing_keys(
        &self,
        target: &HashMap<String, Option<u64>>,
        mut source: HashMap<String, (Key, u64)>,
    ) -> Vec<Key> {
        let mut keys = Vec::new();
        for (id, hash) in target {
            match source.remove(id) {
                Some((_, other)) if Some(other) == *hash => {}
                Some((key, _)) => keys.push(key),
                None => keys.push(key_of(id, self.key.len())),
            }
        }
        keys.extend(source.into_values().map(|(key, _)| key));
        keys.sort_unstable();
        keys
    }

    /// A source that cannot be asked for keys is read whole, and so is one that cannot read a key which a function may make.
    async fn source_of(&self, keys: &[Key]) -> Result<HashMap<Key, Document>> {
        let keys: Vec<Key> = keys.iter().filter(|key| key.len() == self.key.len()).cloned().collect();
        if keys.is_empty() {
            return Ok(HashMap::new());
        }
        // No statement can say a NUL, and a function may write one.
        let keeps_keys = keeps_keys(self.order.pipeline, &self.key);
        let is_unsayable = !keeps_keys && keys.iter().flatten().any(|part| part.contains('\0'));
        if !Stream::takes_keys(self.order) || is_unsayable {
            return self.source_among(&keys, Wanted::All).await;
        }
        match self.source_among(&keys, Wanted::Keys(&keys)).await {
            Err(error)
                if matches!(error.kind, ErrorKind::KeyInvalid | ErrorKind::ValueRefused) && !keeps_keys =>
            {
                self.source_among(&keys, Wanted::All).await
            }
            found => found,
        }
    }

    async fn source_among(&self, keys: &[Key], wanted: Wanted<'_>) -> Result<HashMap<Key, Document>> {
        let mut found: HashMap<Key, Document> = HashMap::new();
        let asked: std::collections::HashSet<&Key> = keys.iter().collect();
        self.each_row(wanted, |key, _, bytes| {
            if asked.contains(key) {
                found.insert(key.clone(), parsed(bytes)?);
            }
            Ok(())
        })
        .await?;
        Ok(found)
    }

    /// Every row that becomes a document, with its key and its id.
    async fn each_row(
        &self,
        wanted: Wanted<'_>,
        mut visit: impl FnMut(&Key, &str, &[u8]) -> Result<()> + Send,
    ) -> Result<()> {
        let mut stream = Stream::open(self.order, &self.key, wanted).await?;
        let mut unwritable = 0;
        while let Some(rows) = stream.next().await? {
            unwritable += self.each_document(&self.fitting(rows)?, &mut visit)?;
        }
        if matches!(wanted, Wanted::All) {
            self.refused.store(stream.refused() + unwritable, Ordering::Relaxed);
        }
        Ok(())
    }

    /// Rows as the index holds their numbers.
    fn fitting(&self, rows: RecordBatch) -> Result<RecordBatch> {
        let columns = numbers::numeric(&rows.schema(), &self.exact);
        match self.short_numbers && !columns.is_empty() {
            true => numbers::shortest(&rows, &columns),
            false => Ok(rows),
        }
    }

    /// Answers how many rows make none.
    fn each_document(
        &self,
        rows: &RecordBatch,
        visit: &mut impl FnMut(&Key, &str, &[u8]) -> Result<()>,
    ) -> Result<u64> {
        let rows = duplicates::distinct(rows, &self.key, self.newest_last.as_deref())?.rows;
        if rows.num_rows() == 0 {
            return Ok(0);
        }
        let mapping = mapping::mapping(self.order.target, &rows.schema(), &self.exact);
        let documents = Documents::new(&rows, self.order.target, &mapping)?;
        let (mut bytes, mut unwritable) = (Vec::new(), 0);
        for row in 0..rows.num_rows() {
            bytes.clear();
            match id_of_row(&rows, &self.key, row)? {
                Ok(id) if documents.write(row, &mut bytes).is_ok() => {
                    visit(&texts(&rows, &self.key, row)?, &id, &bytes)?;
                }
                _ => unwritable += 1,
            }
        }
        Ok(unwritable)
    }

    /// The key and the cursor.
    fn extremes(&self) -> impl Iterator<Item = (&String, &str)> {
        let columns = self.key.iter().chain(&self.order.pipeline.incremental_key);
        columns.filter_map(|column| Some((column, self.fields.field(column)?)))
    }

    async fn count_source(&self) -> Result<SideFigures> {
        let mut figures = SideFigures::default();
        let mut extremes: BTreeMap<String, (String, String)> = BTreeMap::new();
        self.each_row(Wanted::All, |_, _, bytes| {
            figures.rows += 1;
            let document = parsed(bytes)?;
            for (column, field) in self.extremes() {
                let Some(value) = document.get(field).and_then(|value| text(value)) else { continue };
                let (min, max) =
                    extremes.entry(column.clone()).or_insert_with(|| (value.clone(), value.clone()));
                if is_less(&value, min) {
                    min.clone_from(&value);
                }
                if is_less(max, &value) {
                    *max = value;
                }
            }
            Ok(())
        })
        .await?;
        for (column, _) in self.extremes() {
            let (min, max) = extremes.remove(column).unzip();
            figures.min.insert(column.clone(), min);
            figures.max.insert(column.clone(), max);
        }
        Ok(figures)
    }

    async fn count_index(&self) -> Result<SideFigures> {
        let index = self.index();
        let mut figures = SideFigures { rows: index.count().await?, ..SideFigures::default() };
        for (column, field) in self.extremes() {
            let Some(sorted) = self.sortable(field) else { continue };
            let of = |document: Option<Document>| document.and_then(|document| text(document.get(field)?));
            figures.min.insert(column.clone(), of(index.first_by(&sorted, "asc").await?));
            figures.max.insert(column.clone(), of(index.first_by(&sorted, "desc").await?));
        }
        Ok(figures)
    }

    /// A field that both sides sort alike: numbers. Dates have fewer digits on a server, and texts another order.
    fn sortable(&self, field: &str) -> Option<String> {
        let mapping = self.order.target.mapping.as_ref()?;
        let name = mapping::type_of(mapping, field)?;
        matches!(name, "short" | "integer" | "long").then(|| field.to_owned())
    }
}

impl Sum {
    fn add(&mut self, hash: u64) {
        self.rows += 1;
        self.low += hash & 0xffff_ffff;
        self.high += hash >> 32;
    }
}

fn parsed(document: &[u8]) -> Result<Document> {
    serde_json::from_slice(document).map_err(|error| Error::defect("reconcile.document", &error))
}

/// Whole numbers by their value, everything else by its bytes.
fn is_less(one: &str, other: &str) -> bool {
    match (one.parse::<i64>(), other.parse::<i64>()) {
        (Ok(one), Ok(other)) => one < other,
        _ => one < other,
    }
}

/// An id that comes twice is looked at closely.
fn note(hashes: &mut HashMap<String, Option<u64>>, id: &str, hash: Option<u64>) {
    hashes.entry(id.to_owned()).and_modify(|hash| *hash = None).or_insert(hash);
}

/// Documents of an id that lie where nobody looks for it.
struct Elsewhere {
    /// The values of one of them.
    first: Option<Cells>,
    routing: String,
    documents: usize,
}

impl Elsewhere {
    /// Those that have anything of the pipeline's.
    fn of(found: Vec<(String, Document)>, fields: &Fields) -> Self {
        let mut elsewhere = Self { first: None, routing: String::new(), documents: 0 };
        for (routing, document) in found {
            let Some(values) = fields.values(document) else { continue };
            elsewhere.documents += 1;
            if elsewhere.first.is_none() {
                (elsewhere.first, elsewhere.routing) = (Some(values), routing);
            }
        }
        elsewhere
    }

    /// What is wrong with the id, in the place of fields that are not the pipeline's.
    fn said(&self, is_placed: bool) -> Option<String> {
        match self.documents + usize::from(is_placed) {
            _ if self.documents == 0 => None,
            1 => Some(format!("lies under the routing {:?}, where it is not found by its id", self.routing)),
            documents => Some(format!("{documents} documents have this id, under different routings")),
        }
    }
}

/// The key that an id was made of; the id itself where no key of so many columns makes it.
fn key_of(id: &str, columns: usize) -> Key {
    match parts_of(id, columns) {
        Some(key) if document::id(&key).is_ok_and(|made| made == id) => key,
        _ => vec![id.to_owned()],
    }
}

fn parts_of(id: &str, columns: usize) -> Option<Key> {
    if columns == 1 {
        return None;
    }
    let mut parts = vec![String::new()];
    let mut characters = id.chars();
    while let Some(character) = characters.next() {
        match character {
            ':' => parts.push(String::new()),
            '\\' => parts.last_mut().into_iter().for_each(|part| part.extend(characters.next())),
            other => parts.last_mut().into_iter().for_each(|part| part.push(other)),
        }
    }
    (parts.len() == columns).then_some(parts)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_lead_back_to_their_keys() {
        for key in [vec!["7:8"], vec!["a", "b"], vec!["a:b\\", "", "c"]] {
            let key: Key = key.into_iter().map(str::to_owned).collect();
            assert_eq!(key_of(&id(&key).unwrap(), key.len()), key);
        }
    }

    #[test]
    fn an_id_that_no_key_makes_stands_for_itself() {
        for (strange, columns) in [("a:b", 3), ("a", 2), ("\\a:b", 2), ("a:b\\", 2)] {
            assert_eq!(key_of(strange, columns), [strange]);
        }
    }
}
