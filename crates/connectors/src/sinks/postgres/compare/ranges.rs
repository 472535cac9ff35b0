//! Ranges of keys, or buckets of keys that have no order of their own, with what was counted in them.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use tokio_postgres::Row;

use super::side::unsigned;
use crate::reconcile::Key;

/// A range of the first column of the key.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Part {
    /// The first that is in it; none for all from the beginning.
    pub(super) from: Option<String>,
    /// The first behind it; none for all to the end.
    pub(super) to: Option<String>,
    pub(super) target_rows: u64,
    pub(super) source_rows: u64,
}

impl Part {
    /// Of the side that has more.
    pub(super) fn rows(&self) -> u64 {
        self.target_rows.max(self.source_rows)
    }
}

/// What was counted in a range.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Sum {
    pub(super) rows: u64,
    /// Of either hash of its rows.
    hashes: [String; 2],
}

/// The sums of one side, by number of range or bucket.
pub(super) type Sums = BTreeMap<i32, Sum>;

pub(super) fn sums(rows: &[Row]) -> Sums {
    let sum = |row: &Row| {
        let sum = Sum { rows: unsigned(row.get(1)), hashes: [row.get(2), row.get(3)] };
        Some((row.get::<_, Option<i32>>(0)?, sum))
    };
    rows.iter().filter_map(sum).collect()
}

/// Rows that are in no range and no bucket, as they have no whole key.
pub(super) fn keyless(rows: &[Row]) -> u64 {
    let of = rows.iter().find(|row| row.get::<_, Option<i32>>(0).is_none());
    of.map_or(0, |row| unsigned(row.get(1)))
}

pub(super) fn total(sums: &Sums) -> u64 {
    sums.values().map(|sum| sum.rows).sum()
}

/// One that differs: its number, and the rows that either side has in it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Differs {
    pub(super) number: i32,
    pub(super) target_rows: u64,
    pub(super) source_rows: u64,
}

pub(super) fn differing(target: &Sums, source: &Sums) -> Vec<Differs> {
    let numbers: BTreeSet<i32> = target.keys().chain(source.keys()).copied().collect();
    let differs = |number: i32| {
        let of = |sums: &Sums| sums.get(&number).cloned().unwrap_or_default();
        let (target, source) = (of(target), of(source));
        (target != source).then_some(Differs { number, target_rows: target.rows, source_rows: source.rows })
    };
    numbers.into_iter().filter_map(differs).collect()
}

/// The range that a number stands for, between bounds that cut `within`.
pub(super) fn part(bounds: &[String], differs: Differs, within: Option<&Part>) -> Part {
    let number = usize::try_from(differs.number).unwrap_or_default();
    let outer = within.cloned().unwrap_or_default();
    let from = number.checked_sub(1).and_then(|before| bounds.get(before).cloned()).or(outer.from);
    let to = bounds.get(number).cloned().or(outer.to);
    Part { from, to, target_rows: differs.target_rows, source_rows: differs.source_rows }
}

/// Keys of rows that only one side has, or whose hashes differ. A key that comes twice is looked at closely.
pub(super) fn differing_keys(one: &[Row], other: &[Row]) -> Vec<Key> {
    let mut known: HashMap<Key, Option<Vec<i64>>> = HashMap::with_capacity(one.len());
    let mut keys = Vec::new();
    for row in one {
        known.entry(row.get(0)).and_modify(|hash| *hash = None).or_insert_with(|| Some(row.get(1)));
    }
    for row in other {
        let (key, hash): (Key, Vec<i64>) = (row.get(0), row.get(1));
        if known.remove(&key).flatten() != Some(hash) {
            keys.push(key);
        }
    }
    keys.extend(known.into_keys());
    keys.sort_unstable();
    keys.dedup();
    keys
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_stand_for_the_ranges_between_bounds() {
        let bounds = ["10".to_owned(), "20".to_owned()];
        let ends = |number, within: Option<&Part>| {
            let part = part(&bounds, Differs { number, target_rows: 1, source_rows: 2 }, within);
            (part.from, part.to)
        };
        let text = |text: &str| Some(text.to_owned());
        assert_eq!(ends(0, None), (None, text("10")));
        assert_eq!(ends(1, None), (text("10"), text("20")));
        assert_eq!(ends(2, None), (text("20"), None));
        let within = Part { from: text("5"), to: text("30"), ..Part::default() };
        assert_eq!(ends(0, Some(&within)), (text("5"), text("10")));
        assert_eq!(ends(2, Some(&within)), (text("20"), text("30")));
    }

    #[test]
    fn sums_that_differ_or_stand_alone_are_found() {
        let sum = |rows, hash: i64| Sum { rows, hashes: [hash.to_string(), String::new()] };
        let target = Sums::from([(0, sum(2, 5)), (1, sum(3, 7)), (2, sum(1, 1))]);
        let source = Sums::from([(0, sum(2, 5)), (1, sum(3, 8)), (4, sum(9, 9))]);
        let found: Vec<i32> = differing(&target, &source).iter().map(|differs| differs.number).collect();
        assert_eq!(found, [1, 2, 4]);
    }
}
