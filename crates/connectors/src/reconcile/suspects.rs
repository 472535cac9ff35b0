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
    /// Where the columns lie that changes are named by.
    change_key: Vec<Place>,
    with_columns: bool,
    /// Keys that were said to differ, and that neither side has when it is asked for them.
    pub(super) nowhere: HashSet<Key>,
}

/// Of the key where it is one of its columns: documents need not hold those.
enum Place {
    Key(usize),
    Value(usize),
}

pub(super) struct Suspect {
    pub(super) kind: DifferenceKind,
    key: Key,
    /// As either side has it: a row that has moved is named by both.
    pub(super) changes: Vec<Vec<Option<String>>>,
    /// Of the source's row.
    hash: u64,
}

impl Suspects {
    pub(super) fn new(order: &Order<'_>, pair: &dyn Pair) -> Self {
        let of = |names: &[String], name: &String| names.iter().position(|known| known == name);
        let place = |name: &String| {
            let of_key = of(pair.key(), name).map(Place::Key);
            of_key.or_else(|| of(pair.columns(), name).map(Place::Value))
        };
        let change_key = order.pipeline.change_key_or(pair.key()).iter().filter_map(place).collect();
        let with_columns = order.level == Level::Rows;
        Self { all: Vec::new(), change_key, with_columns, nowhere: HashSet::new() }
    }

    pub(super) fn len(&self) -> usize {
        self.all.len()
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &Suspect> {
        self.all.iter()
    }

    /// Those of the rows that differ.
    pub(super) fn take(&mut self, rows: Vec<Row>) {
        let is_nowhere = |row: &&Row| row.source.is_none() && row.target.is_none();
        self.nowhere.extend(rows.iter().filter(is_nowhere).map(|row| row.key.clone()));
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
            let part = |place: &Place| match place {
                // The id of a document that no key makes has no such part.
                Place::Key(place) => row.key.get(*place).cloned(),
                Place::Value(place) => values[*place].clone(),
            };
            self.change_key.iter().map(part).collect::<Vec<_>>()
        };
        let mut changes: Vec<_> = [&row.source, &row.target].into_iter().flatten().map(change).collect();
        changes.dedup();
        let hash = hashed(row.source.as_ref());
        Some(Suspect { kind, key: row.key, changes, hash })
    }

    pub(super) fn extend(&mut self, more: Self) {
        self.all.extend(more.all);
        self.nowhere.extend(more.nowhere);
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

    /// Those that have changed at the source since, or are equal by now, are counted apart; of the others all are counted,
    /// and the first of them answered.
    pub(super) fn differences(self, mut now: Now, keep: usize, figures: &mut Figures) -> Vec<Difference> {
        let mut kept = Vec::new();
        for suspect in self.all {
            let Some(still) = now.rows.remove(&suspect.key).filter(|still| still.hash == suspect.hash) else {
                figures.in_flight += 1;
                continue;
            };
            figures.count(suspect.kind);
            match kept.len() < keep && self.with_columns && can_be_kept(&suspect.key) {
                true => kept.push(Difference {
                    kind: suspect.kind,
                    key: json!(suspect.key),
                    columns: still.columns,
                }),
                false => figures.capped |= self.with_columns,
            }
        }
        kept
    }
}

/// Rows that still differ.
#[derive(Debug)]
pub(super) struct Now {
    rows: HashMap<Key, Still>,
    names: Vec<String>,
    /// So many are told with their columns.
    keep: usize,
}

#[derive(Debug)]
struct Still {
    /// Of what the source has.
    hash: u64,
    columns: BTreeMap<String, Cells>,
}

impl Now {
    pub(super) fn new(order: &Order<'_>, pair: &dyn Pair) -> Self {
        let keep = if order.level == Level::Rows { order.keep } else { 0 };
        Self { rows: HashMap::new(), names: pair.columns().to_vec(), keep }
    }

    pub(super) fn take(&mut self, rows: Vec<Row>) {
        for row in rows.into_iter().filter(|row| row.source != row.target) {
            let columns = if self.rows.len() < self.keep { self.differing(&row) } else { BTreeMap::new() };
            self.rows.insert(row.key, Still { hash: hashed(row.source.as_ref()), columns });
        }
    }

    fn differing(&self, row: &Row) -> BTreeMap<String, Cells> {
        let (Some(source), Some(target)) = (&row.source, &row.target) else { return BTreeMap::new() };
        let sides = source.iter().zip(target);
        let differing = self.names.iter().zip(sides).filter(|(_, (source, target))| source != target);
        let cells = |(name, (source, target)): (&String, (&Option<String>, &Option<String>))| {
            (
                name.clone(),
                Cells { source: source.as_deref().map(shown), target: target.as_deref().map(shown) },
            )
        };
        differing.map(cells).collect()
    }
}

fn hashed(values: Option<&Vec<Option<String>>>) -> u64 {
    let mut hasher = DefaultHasher::new();
    values.hash(&mut hasher);
    hasher.finish()
}

/// The meta-store has no text with a NUL in it, and the id of a document may have: another text would be another document.
fn can_be_kept(key: &Key) -> bool {
    !key.iter().any(|part| part.contains('\0'))
}

/// The meta-store has no text with a NUL in it, and a document may have.
pub(super) fn shown(text: &str) -> String {
    let shown = match text.char_indices().nth(SHOWN) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text.to_owned(),
    };
    shown.replace('\0', "\u{fffd}")
}
