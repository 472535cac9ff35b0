//! A sink of one file: tables in memory. With one line in the runner's list of sinks it can be written to.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};

use arrow_array::{Array, ArrayRef, Int32Array, RecordBatch, StringArray};
use async_trait::async_trait;
use uuid::Uuid;
use vitrina_connectors::sinks::{Kind, Opened, Order};
use vitrina_core::{
    Batch, Commit, Counts, Destination, Entry, Lease, Ledger, Outcome, Result, Scope, Sink, State,
    TargetName, Written,
};

/// Cells as text, by key.
pub(crate) type Table = BTreeMap<Vec<String>, Vec<String>>;

/// Of one installation, by the target's name.
type Place = (Uuid, String);

/// The tables of all installations in this process.
static TABLES: Mutex<BTreeMap<Place, Table>> = Mutex::new(BTreeMap::new());
/// The keys that the open load of a table has met.
static MET: Mutex<BTreeMap<Place, BTreeSet<Vec<String>>>> = Mutex::new(BTreeMap::new());

#[derive(Debug)]
pub(crate) struct Toy;

#[async_trait]
impl Kind for Toy {
    fn serves(&self, target: &TargetName) -> bool {
        matches!(target, TargetName::Named { kind, .. } if kind == "toy")
    }

    async fn open(&self, target: &TargetName, order: &Order<'_>) -> Result<Opened> {
        let key = order.target.key.clone();
        let place = (order.installation, target.to_string());
        let sink = ToySink { place, key: key.clone(), ledger: order.ledger.clone() };
        Ok(Opened { sink: Box::new(sink), destination: Destination { key, server: None } })
    }
}

pub(crate) fn table(installation: Uuid, target: &str) -> Table {
    TABLES.lock().unwrap().get(&(installation, target.to_owned())).cloned().unwrap_or_default()
}

/// Someone else writes where only Vitrina should.
pub(crate) fn damage(installation: Uuid, target: &str, key: &str) {
    let mut tables = TABLES.lock().unwrap();
    let table = tables.get_mut(&(installation, target.to_owned())).unwrap();
    table.insert(vec![key.to_owned()], vec!["damaged".to_owned()]);
}

struct ToySink {
    place: Place,
    key: Vec<String>,
    ledger: Arc<dyn Ledger>,
}

#[async_trait]
impl Sink for ToySink {
    async fn seal(&mut self, _: &Lease, state: State) -> Result<State> {
        Ok(state)
    }

    async fn write(&mut self, batch: &Batch, commit: &Commit) -> Result<Written> {
        let counts = self.put(batch);
        let checkpoint = match &batch.to {
            Some(to) => commit.from.advance(commit.run, to.clone(), counts.deleted, None),
            None => commit.from.clone(),
        };
        let (rejects, backfilled_to) = (batch.rejected.clone(), batch.backfilled_to.clone());
        let outcome = Outcome { counts, rejects, backfilled_to, ..Outcome::default() };
        let (lease, from_version) = (&commit.lease, commit.from_version);
        let entry = Entry { lease, from_version, checkpoint: &checkpoint, outcome: &outcome };
        let committed = self.ledger.commit(&entry).await?;
        let (version, interrupted) = (committed.version, committed.interrupted);
        Ok(Written { counts, checkpoint, version, interrupted })
    }

    async fn clear(&mut self) -> Result<()> {
        MET.lock().unwrap().remove(&self.place);
        Ok(())
    }
}

impl ToySink {
    fn put(&self, batch: &Batch) -> Counts {
        let (mut tables, mut met) = (TABLES.lock().unwrap(), MET.lock().unwrap());
        let (table, met) =
            (tables.entry(self.place.clone()).or_default(), met.entry(self.place.clone()).or_default());
        let mut counts = Counts { read: batch.rows_read, ..Counts::default() };
        let rows: Table = cells(&batch.rows, &self.key).into_iter().zip(cells(&batch.rows, &[])).collect();
        let before = table.len();
        match &batch.scope {
            Scope::Keys(scope) => {
                let scope = cells(scope, &self.key);
                table.retain(|key, _| rows.contains_key(key) || !scope.contains(key));
            }
            Scope::Load { .. } => {
                met.extend(rows.keys().cloned());
                if batch.ends_pass() {
                    let met = std::mem::take(met);
                    table.retain(|key, _| met.contains(key));
                }
            }
            Scope::Nothing => {}
        }
        counts.deleted = (before - table.len()) as u64;
        for (key, row) in rows {
            match table.insert(key, row.clone()) {
                None => counts.inserted += 1,
                Some(old) if old == row => counts.unchanged += 1,
                Some(_) => counts.updated += 1,
            }
        }
        counts
    }
}

/// The cells of these columns, or of all.
fn cells(rows: &RecordBatch, columns: &[String]) -> Vec<Vec<String>> {
    let schema = rows.schema();
    let wanted = |name: &String| columns.is_empty() || columns.contains(name);
    let named = rows.columns().iter().zip(schema.fields());
    let wanted: Vec<_> = named.filter(|(_, field)| wanted(field.name())).map(|(column, _)| column).collect();
    let row = |row| wanted.iter().map(|column| cell(column, row)).collect();
    (0..rows.num_rows()).map(row).collect()
}

fn cell(column: &ArrayRef, row: usize) -> String {
    let (column, any) = (column.slice(row, 1), column.data_type());
    let text = column.as_any().downcast_ref::<StringArray>().map(|column| column.value(0).to_owned());
    let number = || column.as_any().downcast_ref::<Int32Array>().map(|column| column.value(0).to_string());
    text.or_else(number).unwrap_or_else(|| format!("{any} {column:?}"))
}
