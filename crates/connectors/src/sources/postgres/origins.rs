//! Which columns of which tables the columns of a query are. One that takes the name of another brings other values in every
//! row, and no row says so: columns that are exchanged or dropped and added again, and a table that is put in place of another.

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use vitrina_guard::DescribedColumn;

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "String", into = "String")]
pub(super) struct Origins {
    /// Of the query and the names of its columns: those of another one are not compared.
    query: String,
    columns: String,
}

impl Origins {
    pub(super) fn of(sql: &str, described: &[DescribedColumn], is_of_table: impl Fn(usize) -> bool) -> Self {
        let names = described.iter().map(|column| column.name.as_str());
        let origin = |(place, column): (usize, &DescribedColumn)| {
            let origin = column.origin.filter(|_| is_of_table(place));
            origin.map(|(table, number)| format!("{table}.{number}")).unwrap_or_default()
        };
        let origins = described.iter().enumerate().map(origin).collect::<Vec<_>>();
        Self {
            query: digest([sql].into_iter().chain(names)),
            columns: digest(origins.iter().map(String::as_str)),
        }
    }

    pub(super) fn are_other_than(&self, earlier: &Self) -> bool {
        self.query == earlier.query && self.columns != earlier.columns
    }
}

/// `query/columns`.
impl From<String> for Origins {
    fn from(text: String) -> Self {
        let (query, columns) = text.split_once('/').unwrap_or((&text, ""));
        Self { query: query.to_owned(), columns: columns.to_owned() }
    }
}

impl From<Origins> for String {
    fn from(origins: Origins) -> Self {
        format!("{}/{}", origins.query, origins.columns)
    }
}

pub(super) const OTHER_ORIGINS: &str =
    "another column or table of the source has taken the name of one that the query reads";

fn digest<'a>(parts: impl Iterator<Item = &'a str>) -> String {
    let mut digest = Sha256::new();
    for part in parts {
        digest.update(part.len().to_be_bytes());
        digest.update(part);
    }
    digest.finalize().iter().take(8).map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn column(name: &str, origin: Option<(u32, i16)>) -> DescribedColumn {
        let (type_oid, type_name, type_modifier) = (25, "text".to_owned(), -1);
        DescribedColumn { name: name.to_owned(), type_oid, type_name, type_modifier, origin }
    }

    fn origins(sql: &str, described: &[DescribedColumn]) -> Origins {
        Origins::of(sql, described, |_| true)
    }

    #[test]
    fn exchanged_columns_and_tables_are_others_and_another_query_has_its_own() {
        let before = [column("a", Some((7, 1))), column("b", Some((7, 2))), column("c", None)];
        let now = |columns: &[DescribedColumn], sql: &str| {
            origins(sql, columns).are_other_than(&origins("select", &before))
        };
        assert!(!now(&before, "select"));
        assert!(now(&[column("a", Some((7, 2))), column("b", Some((7, 1))), column("c", None)], "select"));
        assert!(now(&[column("a", Some((8, 1))), column("b", Some((8, 2))), column("c", None)], "select"));
        assert!(!now(&[column("a", Some((8, 1))), column("b", Some((7, 2))), column("c", None)], "select 1"));
        let wider = [before.to_vec(), vec![column("d", Some((7, 3)))]].concat();
        assert!(!now(&wider, "select"), "a column that comes by * is asked about elsewhere");
        let kept: Origins =
            serde_json::from_str(&serde_json::to_string(&origins("select", &before)).unwrap()).unwrap();
        assert_eq!(kept, origins("select", &before));
        let view = Origins::of("select", &before, |place| place != 0);
        let of_another_view = [column("a", Some((9, 1))), column("b", Some((7, 2))), column("c", None)];
        assert!(!Origins::of("select", &of_another_view, |place| place != 0).are_other_than(&view));
    }
}
