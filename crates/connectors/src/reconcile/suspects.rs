//! Rows that differ and may yet turn out to be on their way.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::hash::{DefaultHasher, Hash, Hasher};

use serde_json::json;
use vitrina_core::{Cells, Difference, DifferenceKind, Figures, Level};

use super::pair::{Key, Pair, Row};
use super::{Order, pending::Found};

/// Longer values are cut: a difference is kept to be looked at.
const SHOWN: usize = 1000;

pub(super) struct Suspects {
    all: Vec<Suspect>,
    columns: Vec<String>,
    /// Where the columns lie that changes are named by.
    change_key: Vec<usize>,
    with_columns: bool,
}

pub(super) struct Suspect {
    pub(super) kind: DifferenceKind,
    key: Key,
    /// As either side has it: a row that has moved is named by both.
    pub(super) changes: Vec<Vec<Option<String>>>,
    columns: BTreeMap<String, Cells>,
    /// Of the source's row.
    hash: u64,
}

impl Suspects {
    pub(super) fn new(order: &Order<'_>, pair: &dyn Pair) -> Self {
        let columns = pair.columns().to_vec();
        let place = |name: &String| columns.iter().position(|column| column == name);
        let change_key = order.pipeline.change_key_or(pair.key()).iter().filter_map(place).collect();
        Self { all: Vec::new(), change_key, with_columns: order.level == Level::Rows, columns }
    }

    pub(super) fn len(&self) -> usize {
        self.all.len()
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &Suspect> {
        self.all.iter()
    }

    /// Those of the rows that differ.
    pub(super) fn take(&mut self, rows: Vec<Row>) {
        let suspects: Vec<Suspect> = rows.into_iter().filter_map(|row| self.suspect(row)).collect();
        self.all.extend(suspects);
    }

    fn suspect(&self, row: Row) -> Option<Suspect> {
        let kind = match (&row.source, &row.target) {
            (Some(source), Some(target)) if source == target => return None,
            (Some(_), Some(_)) => DifferenceKind::Different,
            (Some(_), None) => DifferenceKind::Missing,
            (None, Some(_)) => DifferenceKind::Extra,
            (None, None) => return None,
        };
        let change = |values: &Vec<Option<String>>| {
            self.change_key.iter().map(|place| values[*place].clone()).collect::<Vec<_>>()
        };
        let mut changes: Vec<_> = [&row.source, &row.target].into_iter().flatten().map(change).collect();
        changes.dedup();
        let columns = if self.with_columns { self.differing_columns(&row) } else { BTreeMap::new() };
        let hash = hashed(row.source.as_ref());
        Some(Suspect { kind, key: row.key, changes, columns, hash })
    }

    fn differing_columns(&self, row: &Row) -> BTreeMap<String, Cells> {
        let (Some(source), Some(target)) = (&row.source, &row.target) else { return BTreeMap::new() };
        let sides = source.iter().zip(target);
        let differing = self.columns.iter().zip(sides).filter(|(_, (source, target))| source != target);
        let cells = |(name, (source, target)): (&String, (&Option<String>, &Option<String>))| {
            (
                name.clone(),
                Cells { source: source.as_deref().map(shown), target: target.as_deref().map(shown) },
            )
        };
        differing.map(cells).collect()
    }

    /// Rows that were refused are told of as rejects.
    pub(super) fn without_rejected(mut self, rejected: &HashSet<String>, figures: &mut Figures) -> Self {
        let before = self.all.len();
        self.all.retain(|suspect| !rejected.contains(&json!(suspect.key).to_string()));
        figures.rejected += (before - self.all.len()) as u64;
        self
    }

    /// Those that the next pass will read are counted and left out.
    pub(super) fn without_pending(mut self, found: &Found, figures: &mut Figures) -> Self {
        let before = self.all.len();
        self.all.retain(|suspect| !found.has(suspect));
        figures.in_flight += (before - self.all.len()) as u64;
        self
    }

    pub(super) fn keys(&self) -> Vec<Key> {
        self.all.iter().map(|suspect| suspect.key.clone()).collect()
    }

    /// So are those that have changed at the source since, or are equal by now.
    pub(super) fn without_moved(mut self, now: &Now, figures: &mut Figures) -> Self {
        let before = self.all.len();
        self.all.retain(|suspect| now.0.get(&suspect.key) == Some(&suspect.hash));
        figures.in_flight += (before - self.all.len()) as u64;
        self
    }

    /// All are counted, and the first of them answered.
    pub(super) fn differences(self, keep: usize, figures: &mut Figures) -> Vec<Difference> {
        let mut kept = Vec::new();
        for suspect in self.all {
            figures.count(suspect.kind);
            match kept.len() < keep && self.with_columns {
                true => kept.push(Difference {
                    kind: suspect.kind,
                    key: json!(suspect.key),
                    columns: suspect.columns,
                }),
                false => figures.capped |= self.with_columns,
            }
        }
        kept
    }
}

/// Rows that still differ, with the hash of what the source has.
#[derive(Debug, Default)]
pub(super) struct Now(HashMap<Key, u64>);

impl Now {
    pub(super) fn take(&mut self, rows: Vec<Row>) {
        let still = rows.into_iter().filter(|row| row.source != row.target);
        self.0.extend(still.map(|row| (row.key, hashed(row.source.as_ref()))));
    }
}

fn hashed(values: Option<&Vec<Option<String>>>) -> u64 {
    let mut hasher = DefaultHasher::new();
    values.hash(&mut hasher);
    hasher.finish()
}

/// The meta-store has no text with a NUL in it, and a document may have.
fn shown(text: &str) -> String {
    let shown = match text.char_indices().nth(SHOWN) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text.to_owned(),
    };
    shown.replace('\0', "\u{fffd}")
}
