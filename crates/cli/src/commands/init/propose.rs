//! What a pipeline of a table would look like: by which key, by which cursor, without which rows; or why there is none.

use super::introspect::{Column, Key, Table};
use crate::output::shell_word;

/// Columns that every change of a row moves, by the names people, Rails, Django, Hibernate, Spring, Odoo and others give them, without
/// case and `_`; the more usual ones first.
const CHANGE_STAMPS: [&str; 50] = [
    "updatedat",
    "modifiedat",
    "modified",
    "updated",
    "lastmodified",
    "lastupdated",
    "lastupdate",
    "changedat",
    "lastmodifiedat",
    "lastupdatedat",
    "lastchangedat",
    "updatedon",
    "modifiedon",
    "changedon",
    "lastmodifiedon",
    "lastupdatedon",
    "datemodified",
    "dateupdated",
    "datechanged",
    "datelastmodified",
    "datelastupdated",
    "modifieddate",
    "updateddate",
    "changeddate",
    "updatedate",
    "modificationdate",
    "modificationtime",
    "lastmodifieddate",
    "lastupdateddate",
    "lastupdatedate",
    "lastmodifiedtime",
    "lastupdatedtime",
    "updatetime",
    "updatedtime",
    "modifiedtime",
    "modifytime",
    "updatetimestamp",
    "updatedtimestamp",
    "modifiedtimestamp",
    "updatets",
    "updatedts",
    "modifiedts",
    "lastmodifieddatetime",
    "lastchanged",
    "lastchange",
    "writedate",
    "gmtmodified",
    "systemmodstamp",
    "mtime",
    "changed",
];
const STAMP_TYPES: [&str; 2] = ["timestamp with time zone", "timestamp without time zone"];
/// Columns that are filled when a row is deleted in name only.
const DELETION_STAMPS: [&str; 7] =
    ["deletedat", "removedat", "deletedon", "datedeleted", "deleteddate", "discardedat", "deleted"];
const DELETION_FLAGS: [&str; 3] = ["isdeleted", "deleted", "isremoved"];

/// Names that differ in case and `_` alone are one: `updatedAt` and `updated_at`.
fn folded(name: &str) -> String {
    name.chars().filter(|c| c.is_ascii_alphanumeric()).map(|c| c.to_ascii_lowercase()).collect()
}

/// A pipeline of one table, before it has a name.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Proposal {
    pub(super) query: String,
    pub(super) key: Vec<String>,
    /// Without one every run reads all rows.
    pub(super) cursor: Option<Cursor>,
    /// Why it is so, a sentence each.
    pub(super) reasons: Vec<String>,
}

#[derive(Debug, PartialEq, Eq)]
pub(super) struct Cursor {
    pub(super) column: String,
    /// Tells rows of an equal stamp apart.
    pub(super) id: String,
}

/// How a query that joins others to the table would follow them too, a sentence each: rows that refer to it by its key, and
/// tell when they have changed.
pub(super) fn followed(table: &Table, key: &[String], all: &[Table]) -> Vec<String> {
    let of = |other: &Table| {
        let stamp = obstacle(other).is_none().then(|| stamp(other)).flatten()?;
        let reference = other.refers.iter().find(|to| to.table == table.spoken() && to.key == key)?;
        let columns = reference.columns.join(", ");
        let written: Vec<String> = reference.columns.iter().map(|name| scalar(name)).collect();
        let watch = format!(
            "{{ table: {}, key: [{}], incremental_key: {} }}",
            scalar(&other.quoted),
            written.join(", "),
            scalar(&stamp.name)
        );
        Some(format!(
            "{} refers to it by ({columns}): a query that joins it has `watch: [{watch}]`",
            other.spoken()
        ))
    };
    all.iter().filter(|other| other.spoken() != table.spoken()).filter_map(of).collect()
}

/// A pipeline, or why there is none.
pub(super) fn pipeline(table: &Table) -> Result<Proposal, String> {
    obstacle(table).map_or(Ok(()), Err)?;
    let (key, why_key) = key(table)?;
    let (cursor, why_cursor) = match cursor(table, &key) {
        Ok((cursor, why)) => (Some(cursor), why),
        Err(why) => (None, format!("every run reads all rows: {why}")),
    };
    let mut reasons = vec![why_key, why_cursor];
    let deleted = deletion(table);
    reasons.push(deletes(table, &key, cursor.is_some(), deleted.is_some()));
    reasons.extend(deleted.as_ref().map(|(column, _)| {
        format!("rows whose {column} is set are left out of the target, and deleted from it")
    }));
    let query = query(table, deleted.map(|(_, condition)| condition));
    Ok(Proposal { query, key, cursor, reasons })
}

/// What becomes of rows that the source deletes, and how the change log would follow them.
fn deletes(table: &Table, key: &[String], by_cursor: bool, in_name_only: bool) -> String {
    let install = format!(
        "`vitrina changelog install {} --key {}`, applied by its owner, and `capture: changelog`",
        shell_word(&table.quoted),
        shell_word(&key.join(","))
    );
    let is_logged = matches!(table.kind.as_str(), "r" | "p");
    match (by_cursor, table.deleted) {
        (false, _) if is_logged => format!(
            "deleted rows leave the target with the next run; {install} with `mode: incremental` would read changes alone"
        ),
        (false, _) => "deleted rows leave the target with the next run".to_owned(),
        (true, 0) if in_name_only => "deletes: none is known but those that a column tells".to_owned(),
        (true, 0) => format!(
            "deletes: none is known; should rows be deleted, {install} follows that, or `full_schedule: 0 3 * * *` finds it every night"
        ),
        (true, deleted) => format!(
            "deletes: {deleted} rows were deleted so far, and a cursor does not see that: {install} follows them, \
             or `full_schedule: 0 3 * * *` finds them every night"
        ),
    }
}

/// A name as a line of YAML writes it.
fn scalar(name: &str) -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '.';
    match name.chars().all(is_plain) {
        true => name.to_owned(),
        false => format!("'{}'", name.replace('\'', "''")),
    }
}

fn obstacle(table: &Table) -> Option<String> {
    let reason = match table {
        Table { readable: false, .. } => "this login may not read it",
        Table { kind, .. } if kind == "v" => {
            "a view has no key: write its pipeline by hand, and name the key in its target"
        }
        Table { kind, .. } if kind == "m" || kind == "f" => {
            "its columns are not known to be not null: write its pipeline by hand, and name the key in its target"
        }
        Table { guarded: true, .. } => {
            "row security would hide rows from this login: read with one that bypasses it"
        }
        Table { has_children: true, .. } => {
            "other tables inherit from it, and its key does not hold over their rows"
        }
        Table { columns, .. } if columns.is_empty() => "it has no columns",
        _ => return None,
    };
    Some(reason.to_owned())
}

/// The primary key, or what serves as one: unique, and never null.
fn key(table: &Table) -> Result<(Vec<String>, String), String> {
    let is_not_null = |name: &String| table.column(name).is_some_and(|column| column.not_null);
    let Some(Key { primary, columns }) = table.keys.iter().find(|key| key.columns.iter().all(is_not_null))
    else {
        return Err("it has neither a primary key nor a unique one that is never null".to_owned());
    };
    let what = if *primary { "its primary key" } else { "unique, and never null" };
    Ok((columns.clone(), format!("key ({}): {what}", columns.join(", "))))
}

fn cursor(table: &Table, key: &[String]) -> Result<(Cursor, String), String> {
    let Some(stamp) = stamp(table) else {
        let nullable = stamps(table).next();
        return Err(match nullable {
            Some(column) => format!(
                "{} tells when a row has changed, but may be null; after `alter table {} alter column {} set not null` it can be the cursor",
                column.name, table.quoted, column.quoted
            ),
            None => {
                "no column with a usual name, such as updated_at, tells when a row has changed".to_owned()
            }
        });
    };
    let Some(id) = id(table, key) else {
        let hint = "and no single column tells rows of an equal stamp apart";
        return Err(format!("there is {}, but the key has several columns, {hint}", stamp.name));
    };
    let indexed = match table.leading.contains(&stamp.name) {
        true => "with an index".to_owned(),
        false => {
            let id = &table.column(&id).map_or_else(|| id.clone(), |column| column.quoted.clone());
            format!(
                "without an index: `create index on {} ({}, {id})` makes runs cheaper",
                table.quoted, stamp.quoted
            )
        }
    };
    let why = format!("cursor {}, which every change of a row must move, {indexed}", stamp.name);
    Ok((Cursor { column: stamp.name.clone(), id }, why))
}

/// The best one: indexed before not, aware of its time zone before not, by the more usual name.
fn stamp(table: &Table) -> Option<&Column> {
    let usable = stamps(table).filter(|column| column.not_null);
    usable.min_by_key(|column| {
        (!table.leading.contains(&column.name), column.type_name != STAMP_TYPES[0], place(column))
    })
}

fn stamps(table: &Table) -> impl Iterator<Item = &Column> {
    let is_stamp =
        |column: &&Column| STAMP_TYPES.contains(&column.type_name.as_str()) && place(column).is_some();
    table.columns.iter().filter(is_stamp)
}

fn place(column: &Column) -> Option<usize> {
    let name = folded(&column.name);
    CHANGE_STAMPS.iter().position(|known| name == *known)
}

/// The key where it is one column, else another column that is unique and never null.
fn id(table: &Table, key: &[String]) -> Option<String> {
    let single = |columns: &[String]| match columns {
        [one] if table.column(one)?.not_null => Some(one.clone()),
        _ => None,
    };
    single(key).or_else(|| table.keys.iter().find_map(|key| single(&key.columns)))
}

/// The column that marks deleted rows, and the condition of those that are not.
fn deletion(table: &Table) -> Option<(String, String)> {
    let named = |column: &Column, names: &[&str]| names.contains(&folded(&column.name).as_str());
    let condition = |column: &Column| {
        let Column { quoted, type_name, not_null, .. } = column;
        match type_name.as_str() {
            "boolean" if named(column, &DELETION_FLAGS) => Some(format!("{quoted} is not true")),
            type_name if STAMP_TYPES.contains(&type_name) && !not_null && named(column, &DELETION_STAMPS) => {
                Some(format!("{quoted} is null"))
            }
            _ => None,
        }
    };
    table.columns.iter().find_map(|column| Some((column.name.clone(), condition(column)?)))
}

fn query(table: &Table, condition: Option<String>) -> String {
    let columns: Vec<&str> = table.columns.iter().map(|column| column.quoted.as_str()).collect();
    let rows = condition.map(|condition| format!(" where {condition}\n")).unwrap_or_default();
    format!("select {}\n  from {}\n{rows}", wrapped(&columns), table.quoted)
}

/// Lines of a length that can be read.
fn wrapped(columns: &[&str]) -> String {
    let (mut text, mut width) = (String::new(), 0);
    for (number, column) in columns.iter().enumerate() {
        let length = column.chars().count() + 2;
        match number {
            0 => {}
            _ if width + length > 90 => {
                text.push_str(",\n       ");
                width = 0;
            }
            _ => text.push_str(", "),
        }
        text.push_str(column);
        width += length;
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table(columns: &[(&str, &str, bool)], keys: &[&[&str]]) -> Table {
        let column = |(name, type_name, not_null): &(&str, &str, bool)| Column {
            name: (*name).to_owned(),
            quoted: (*name).to_owned(),
            type_name: (*type_name).to_owned(),
            not_null: *not_null,
        };
        let key = |(place, columns): (usize, &&[&str])| Key {
            primary: place == 0,
            columns: columns.iter().map(|name| (*name).to_owned()).collect(),
        };
        Table {
            schema: "shop".to_owned(),
            name: "orders".to_owned(),
            quoted: "shop.orders".to_owned(),
            kind: "r".to_owned(),
            readable: true,
            columns: columns.iter().map(column).collect(),
            keys: keys.iter().enumerate().map(key).collect(),
            ..Table::default()
        }
    }

    const ID: (&str, &str, bool) = ("id", "bigint", true);
    const MODIFIED: (&str, &str, bool) = ("modified", "timestamp with time zone", true);

    #[test]
    fn a_stamp_that_is_never_null_is_the_cursor_and_the_key_tells_equal_stamps_apart() {
        let proposal = pipeline(&table(&[ID, MODIFIED], &[&["id"]])).expect("a pipeline");
        assert_eq!(proposal.cursor, Some(Cursor { column: "modified".to_owned(), id: "id".to_owned() }));
        assert_eq!(proposal.query, "select id, modified\n  from shop.orders\n");
        assert!(proposal.reasons[1].contains("`create index on shop.orders (modified, id)`"), "{proposal:?}");
    }

    #[test]
    fn cursors_are_found_by_the_names_that_people_and_frameworks_give_them() {
        for name in [
            "last_update",
            "updatedAt",
            "UpdatedAt",
            "modified_at",
            "changed_on",
            "updated_on",
            "lastModifiedDate",
            "LAST_UPDATED",
            "update_time",
            "write_date",
            "date_modified",
            "gmt_modified",
            "last_modified_date",
            "modificationTime",
        ] {
            let stamp = (name, "timestamp without time zone", true);
            let cursor = pipeline(&table(&[ID, stamp], &[&["id"]])).expect("a pipeline").cursor;
            assert_eq!(cursor.map(|cursor| cursor.column).as_deref(), Some(name));
        }
        for name in ["created_at", "published_on", "price_updated_at", "last_login"] {
            let stamp = (name, "timestamp with time zone", true);
            assert_eq!(
                pipeline(&table(&[ID, stamp], &[&["id"]])).expect("a pipeline").cursor,
                None,
                "{name}"
            );
        }
    }

    #[test]
    fn where_rows_were_deleted_the_change_log_is_proposed() {
        let quoted = "\"Web Shop\".\"Order\"".to_owned();
        let log = "`vitrina changelog install '\"Web Shop\".\"Order\"' --key id`, applied by its owner, and `capture: changelog`";
        for (columns, deleted, told) in [
            (vec![ID, MODIFIED], 7, "7 rows were deleted so far, and a cursor does not see that"),
            (vec![ID, MODIFIED], 0, "deletes: none is known; should rows be deleted"),
            (vec![ID], 7, "deleted rows leave the target with the next run"),
        ] {
            let table = Table { deleted, quoted: quoted.clone(), ..table(&columns, &[&["id"]]) };
            let reason = &pipeline(&table).expect("a pipeline").reasons[2];
            assert!(reason.contains(told) && reason.contains(log), "{reason}");
        }
    }

    #[test]
    fn of_several_stamps_the_indexed_one_is_taken() {
        let stamp = ("last_updated", "timestamp without time zone", true);
        let mut table = table(&[ID, MODIFIED, stamp], &[&["id"]]);
        table.leading = vec!["last_updated".to_owned()];
        assert_eq!(pipeline(&table).expect("a pipeline").cursor.expect("a cursor").column, "last_updated");
    }

    #[test]
    fn without_a_usable_cursor_every_run_reads_all_and_says_why() {
        let nullable = ("updated_at", "timestamp with time zone", false);
        let created = ("created_at", "timestamp with time zone", true);
        let line = ("line", "integer", true);
        for (columns, keys, told) in [
            (vec![ID, nullable], [&["id"][..]], "updated_at tells when a row has changed, but may be null"),
            (vec![ID, created], [&["id"][..]], "no column with a usual name"),
            (vec![ID, line, MODIFIED], [&["id", "line"][..]], "the key has several columns"),
        ] {
            let proposal = pipeline(&table(&columns, &keys)).expect("a pipeline");
            assert_eq!(proposal.cursor, None);
            assert!(proposal.reasons[1].contains(told), "{proposal:?}");
        }
    }

    #[test]
    fn another_unique_column_tells_equal_stamps_apart_where_the_key_has_several() {
        let table = table(&[ID, ("line", "integer", true), MODIFIED], &[&["line", "modified"], &["id"]]);
        let proposal = pipeline(&table).expect("a pipeline");
        assert_eq!(proposal.key, ["line", "modified"]);
        assert_eq!(proposal.cursor.expect("a cursor").id, "id");
    }

    #[test]
    fn rows_that_are_deleted_in_name_only_stay_out() {
        for (column, condition) in [
            (("deleted_at", "timestamp with time zone", false), " where deleted_at is null\n"),
            (("is_deleted", "boolean", true), " where is_deleted is not true\n"),
        ] {
            let proposal = pipeline(&table(&[ID, column], &[&["id"]])).expect("a pipeline");
            assert!(proposal.query.ends_with(condition), "{proposal:?}");
            assert_eq!(proposal.reasons.len(), 4);
        }
    }

    #[test]
    fn what_has_no_key_or_cannot_be_read_whole_is_left_out() {
        let sound = table(&[ID], &[&["id"]]);
        let without_key = table(&[("id", "bigint", false)], &[]);
        for (table, told) in [
            (without_key, "neither a primary key"),
            (Table { kind: "v".to_owned(), ..sound.clone() }, "a view has no key"),
            (Table { kind: "m".to_owned(), ..sound.clone() }, "not known to be not null"),
            (Table { guarded: true, ..sound.clone() }, "row security"),
            (Table { has_children: true, ..sound.clone() }, "inherit"),
            (Table { readable: false, ..sound }, "may not read"),
        ] {
            let reason = pipeline(&table).expect_err("left out");
            assert!(reason.contains(told), "{reason}");
        }
    }

    #[test]
    fn many_columns_stand_on_lines_that_can_be_read() {
        let names: Vec<String> = (0..40).map(|number| format!("column_{number}")).collect();
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        assert!(wrapped(&names).lines().all(|line| line.len() <= 100));
    }
}
