//! One side of a comparison: a relation, its columns in the mart's types, and the statements that are asked of it.

use vitrina_core::SideFigures;

use super::form::Form;
use super::hashing::{Hashing, Value};
use super::ranges::Part;
use crate::reconcile::Key;
use crate::sql::{array, literal};

/// Prefixes of what hashes are computed from.
const ROW: &str = "v";
const KEY: &str = "k";

/// A column as both sides have it.
#[derive(Debug, Clone)]
pub(super) struct SideColumn {
    pub(super) name: String,
    pub(super) form: Form,
    /// The mart's type, which bounds of ranges and keys are written in.
    pub(super) type_name: String,
    /// A value in the mart's type.
    pub(super) value: String,
    /// The same as an index knows it, where it compares with the mart's type.
    pub(super) indexed: String,
}

#[derive(Debug)]
pub(super) struct Side {
    /// With its alias.
    pub(super) relation: String,
    pub(super) key: Vec<SideColumn>,
    pub(super) columns: Vec<SideColumn>,
    /// The last of several rows of one key counts.
    pub(super) newest_last: String,
    /// Rows that were refused: the mart's types may not even hold them.
    pub(super) refused: Vec<Key>,
    /// What tells the pipeline's own rows.
    pub(super) own: String,
    /// Rows without a whole key are counted, where checksums are computed: no row of the target can stand for them.
    pub(super) counts_keyless: bool,
}

impl Side {
    /// Rows without a whole key are rejects, and no rows of the target. Nor are those that were refused.
    fn whole(&self) -> String {
        let mut parts = vec![self.has_key(), self.own.clone()];
        if !self.refused.is_empty() {
            parts.push(format!("not ({})", self.among(&self.refused)));
        }
        parts.join(" and ")
    }

    fn has_key(&self) -> String {
        let parts = self.key.iter().map(|column| format!("{} is not null", column.indexed));
        parts.collect::<Vec<_>>().join(" and ")
    }

    fn is_keyless(&self) -> String {
        format!("not ({}) and {}", self.has_key(), self.own)
    }

    /// How many rows have no whole key.
    pub(super) fn count_keyless(&self) -> String {
        format!("select count(*) from {} where {}", self.relation, self.is_keyless())
    }

    /// What a row's hashes are computed from, and the hashes themselves.
    fn hash(&self, hashing: Hashing) -> (String, [String; 2]) {
        let values = values(&self.columns);
        (hashing.inputs(&values, ROW), hashing.hashes(&values, ROW))
    }

    fn key_texts(&self) -> String {
        let texts = self.key.iter().map(|column| column.form.shown(&column.value));
        format!("array[{}]", texts.collect::<Vec<_>>().join(", "))
    }

    /// Rows, and the extremes of some columns.
    pub(super) fn count(&self, of: &[String]) -> String {
        let extremes = self.columns.iter().filter(|column| of.contains(&column.name)).map(|column| {
            let (min, max) =
                (column.form.extreme("min", &column.value), column.form.extreme("max", &column.value));
            format!(", {min}, {max}")
        });
        let extremes: String = extremes.collect();
        format!("select count(*){extremes} from {} where {}", self.relation, self.whole())
    }

    pub(super) fn counted(&self, of: &[String], row: &tokio_postgres::Row) -> SideFigures {
        let names = self.columns.iter().map(|column| &column.name).filter(|name| of.contains(name));
        let mut figures = SideFigures { rows: unsigned(row.get(0)), ..SideFigures::default() };
        for (place, name) in names.enumerate() {
            figures.min.insert(name.clone(), row.get(1 + 2 * place));
            figures.max.insert(name.clone(), row.get(2 + 2 * place));
        }
        figures
    }

    /// Every so-many-th key, within a range.
    pub(super) fn bounds(&self, rows: u64, within: Option<&Part>) -> String {
        let key = &self.key[0].value;
        let range = within.map(|part| format!(" and {}", self.within(part))).unwrap_or_default();
        format!(
            "select coalesce(array_agg(k::text order by k), '{{}}') from (
                select k, row_number() over (order by k) as n from (
                    select {key} as k from {} where {}{range}) keys) numbered where n % {rows} = 0",
            self.relation,
            self.whole(),
        )
    }

    /// Checksums by the ranges between `bounds`.
    pub(super) fn ranges(&self, hashing: Hashing, bounds: &[String], within: Option<&Part>) -> String {
        let key = &self.key[0];
        let bounds = literal(&array(bounds.iter().map(String::as_str)));
        let bucket = format!(
            "width_bucket({}, {bounds}::{}[]) as b, {} as keyed",
            key.value,
            key.type_name,
            self.has_key()
        );
        self.checksums((&bucket, "b"), hashing, within)
    }

    /// Checksums by buckets of keys.
    pub(super) fn buckets(&self, hashing: Hashing, buckets: u32) -> String {
        let (inputs, bucket) = self.bucket(hashing, buckets);
        self.checksums((&format!("{inputs}, {} as keyed", self.has_key()), &bucket), hashing, None)
    }

    /// A sum of all rows' hashes does not overflow, and rows that come twice do not cancel out.
    fn checksums(
        &self,
        (of_bucket, bucket): (&str, &str),
        hashing: Hashing,
        within: Option<&Part>,
    ) -> String {
        let (inputs, [one, two]) = self.hash(hashing);
        let condition = match within {
            Some(part) => format!("{} and {}", self.whole(), self.within(part)),
            None if self.counts_keyless => format!("{} or {}", self.whole(), self.is_keyless()),
            None => self.whole(),
        };
        format!(
            "select case when keyed then {bucket} end, count(*), sum({one})::text, sum({two})::text from (
                select {of_bucket}, {inputs} from {} where {condition} offset 0) rows group by 1",
            self.relation,
        )
    }

    /// What the bucket of a row's key is computed from, and the bucket itself.
    fn bucket(&self, hashing: Hashing, buckets: u32) -> (String, String) {
        let key = values(&self.key);
        let [one, _] = hashing.hashes(&key, KEY);
        (hashing.inputs(&key, KEY), format!("(({one}) & {})::int4", buckets - 1))
    }

    /// Keys and hashes of the rows in some ranges.
    pub(super) fn rows_of_ranges(&self, hashing: Hashing, parts: &[Part]) -> String {
        let ranges = parts.iter().map(|part| format!("({})", self.within(part))).collect::<Vec<_>>();
        self.hashes(hashing, &format!("and ({}) offset 0) rows", ranges.join(" or ")), "")
    }

    /// Keys of the rows in some ranges.
    pub(super) fn keys_of_ranges(&self, parts: &[Part]) -> String {
        let ranges = parts.iter().map(|part| format!("({})", self.within(part))).collect::<Vec<_>>();
        let (keys, whole) = (self.key_texts(), self.whole());
        format!("select {keys} from {} where {whole} and ({})", self.relation, ranges.join(" or "))
    }

    /// Keys and hashes of the rows in some buckets.
    pub(super) fn rows_of_buckets(&self, hashing: Hashing, buckets: u32, some: &[i32]) -> String {
        let some = some.iter().map(i32::to_string).collect::<Vec<_>>().join(",");
        let (inputs, bucket) = self.bucket(hashing, buckets);
        let condition = format!("offset 0) rows where {bucket} = any ('{{{some}}}'::int4[])");
        self.hashes(hashing, &condition, &format!(", {inputs}"))
    }

    fn hashes(&self, hashing: Hashing, condition: &str, more: &str) -> String {
        let (inputs, [one, two]) = self.hash(hashing);
        format!(
            "select k, array[{one}, {two}] from (select {} as k, {inputs}{more} from {} where {} {condition}",
            self.key_texts(),
            self.relation,
            self.whole()
        )
    }

    fn within(&self, part: &Part) -> String {
        let key = &self.key[0];
        let bound = |operator: &str, bound: &Option<String>| {
            let bound = bound.as_ref()?;
            Some(format!("{} {operator} {}::{}", key.indexed, literal(bound), key.type_name))
        };
        let bounds: Vec<_> = [bound(">=", &part.from), bound("<", &part.to)].into_iter().flatten().collect();
        if bounds.is_empty() { "true".to_owned() } else { bounds.join(" and ") }
    }

    /// Rows of some keys, as text, out of a relation like this one's.
    pub(super) fn rows(&self, keys: &[Key], relation: &str) -> String {
        let shown = self.columns.iter().map(|column| column.form.shown(&column.value));
        let order = match self.newest_last.as_str() {
            "" => String::new(),
            newest_last => format!(" order by {newest_last}"),
        };
        format!(
            "select {}, array[{}] from {} where {} and {}{order}",
            self.key_texts(),
            shown.collect::<Vec<_>>().join(", "),
            relation,
            self.among(keys),
            self.own,
        )
    }

    /// A key as the columns' types write it.
    pub(super) fn known_as(&self, key: &Key) -> String {
        let text = |(column, text): (&SideColumn, &String)| {
            column.form.shown(&format!("{}::{}", literal(text), column.type_name))
        };
        format!("select array[{}]", self.key.iter().zip(key).map(text).collect::<Vec<_>>().join(", "))
    }

    /// One more column of the row of a key, as a moment.
    pub(super) fn moment(&self, column: &str, key: &Key) -> String {
        let moment = format!("to_char({column} at time zone 'UTC', 'YYYY-MM-DD\"T\"HH24:MI:SS.US\"Z\"')");
        let (of_key, own) = (self.among(std::slice::from_ref(key)), &self.own);
        format!("select {moment} from {} where {of_key} and {own}", self.relation)
    }

    /// As a list of values an index can serve. There are no arrays of arrays.
    fn among(&self, keys: &[Key]) -> String {
        if let [column] = self.key.as_slice()
            && !column.type_name.ends_with("[]")
        {
            let values = literal(&array(keys.iter().map(|key| key[0].as_str())));
            return format!("{} = any ({values}::{}[])", column.indexed, column.type_name);
        }
        let columns = self.key.iter().map(|column| column.indexed.as_str()).collect::<Vec<_>>().join(", ");
        let row = |key: &Key| {
            let value =
                |(column, text): (&SideColumn, &String)| format!("{}::{}", literal(text), column.type_name);
            let values = self.key.iter().zip(key).map(value).collect::<Vec<_>>().join(", ");
            format!("({values})")
        };
        format!("({columns}) in ({})", keys.iter().map(row).collect::<Vec<_>>().join(", "))
    }
}

fn values(columns: &[SideColumn]) -> Vec<Value> {
    columns.iter().map(|column| (column.form, column.value.clone())).collect()
}

pub(super) fn unsigned(number: i64) -> u64 {
    u64::try_from(number).unwrap_or_default()
}
