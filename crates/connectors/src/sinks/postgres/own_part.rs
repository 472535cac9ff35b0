//! The part of a mart that a pipeline writes: all of it or, where pipelines share it, its own rows or its own columns.
//! Whatever deletes, counts or compares rows of a mart does so within it.
//!
//! By columns a row in which a pipeline has no value and no row mean the same: nothing else tells whose a row is. So a mart
//! has the rows in which some pipeline has a value.

use std::collections::BTreeSet;

use arrow_array::RecordBatch;
use vitrina_core::{Error, Pipeline, Reject, Result, Shared, Target};

use super::mart::Mart;
use crate::arrow_text::nullable_texts;
use crate::connection::Session;
use crate::rejects::{keep, reject};
use crate::sql::{identifier, literal};

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) enum OwnPart {
    /// Nobody else writes to the mart.
    #[default]
    Whole,
    /// The rows that have a value in a column of the key.
    Rows { column: String, value: String },
    /// Columns that are not of the key. None until they are known: then it has no row either.
    Columns(Vec<String>),
}

impl OwnPart {
    pub(super) fn of(pipeline: &Pipeline, target: &Target) -> Result<Self> {
        if let Some(violation) = pipeline.shared_violation(target) {
            return Err(Error::fix("sink.shared_value", violation.message));
        }
        let value = pipeline.shared_value.clone().unwrap_or_default();
        Ok(match &target.shared {
            None => Self::Whole,
            Some(Shared::Rows { column }) => Self::Rows { column: column.clone(), value },
            Some(Shared::Columns) => Self::Columns(Vec::new()),
        })
    }

    /// With columns that are its own, where it has any of a mart.
    pub(super) fn with_columns(self, columns: impl Iterator<Item = String>) -> Self {
        match self {
            Self::Columns(_) => Self::Columns(columns.collect::<BTreeSet<_>>().into_iter().collect()),
            other => other,
        }
    }

    pub(super) fn is_whole(&self) -> bool {
        *self == Self::Whole
    }

    /// Whether a row of the mart, or of a source with the same columns, is the pipeline's. A source's rows are all its own,
    /// unless they say nothing.
    pub(super) fn condition(&self, alias: &str) -> String {
        match self {
            Self::Whole => "true".to_owned(),
            Self::Rows { column, value } => format!("{alias}.{} = {}", identifier(column), literal(value)),
            Self::Columns(own) => has_value(own.iter().map(String::as_str), alias),
        }
    }
}

/// Some of these columns are not NULL.
pub(super) fn has_value<'a>(columns: impl Iterator<Item = &'a str>, alias: &str) -> String {
    let values: Vec<_> = columns.map(|name| format!("{alias}.{}", identifier(name))).collect();
    if values.is_empty() { "false".to_owned() } else { format!("num_nonnulls({}) > 0", values.join(", ")) }
}

impl Mart {
    /// Takes the pipeline's own part out of the rows `t` that a condition holds for; `others` are further tables that it
    /// names. By columns that is rows that nobody else has a value in, and behind them the columns of the rest: a condition
    /// may be on those columns.
    pub(super) fn delete(&self, others: Option<&str>, condition: &str) -> Vec<String> {
        let list = |word: &str| others.map(|others| format!(" {word} {others}")).unwrap_or_default();
        let (table, own) = (&self.table, self.own.condition("t"));
        let delete = format!("delete from {table} t{} where {condition} and {own}", list("using"));
        let OwnPart::Columns(columns) = &self.own else { return vec![delete] };
        if columns.is_empty() {
            return Vec::new();
        }
        let mut nulls: Vec<_> = columns.iter().map(|name| format!("{} = null", identifier(name))).collect();
        nulls.extend(self.touch_column.iter().map(|touch| format!("{} = now()", identifier(touch))));
        let foreign = self.content().filter(|name| !columns.iter().any(|own| own == name));
        vec![
            format!("{delete} and not ({})", has_value(foreign, "t")),
            format!("update {table} t set {}{} where {condition} and {own}", nulls.join(", "), list("from")),
        ]
    }

    /// Rows of the mart that a condition on them and on staged rows `s` holds for, and that nobody has a value in.
    pub(super) fn delete_empty(&self, from: &str, condition: &str) -> String {
        let content = has_value(self.content(), "t");
        format!("delete from {} t using {from} s where {condition} and not ({content})", self.table)
    }

    /// Columns that pipelines fill. A default fills a column of its own accord.
    fn content(&self) -> impl Iterator<Item = &str> {
        let is_content = |name: &str| !self.is_key(name) && self.touch_column.as_deref() != Some(name);
        let columns = self.columns.iter().filter(|column| !column.computed && !column.has_default);
        columns.map(|column| column.name.as_str()).filter(move |name| is_content(name))
    }

    /// The column that says whose a row is must be in the key, so that two pipelines never meet in one row, and of a type
    /// whose values are equal exactly where their texts are.
    pub(super) async fn require_own_part(&self, session: &Session) -> Result<()> {
        let OwnPart::Rows { column, value } = &self.own else { return Ok(()) };
        if !self.is_key(column) {
            let key = self.key.join(", ");
            let message =
                format!("{} is shared by rows of {column}, which is not in its key ({key})", self.name);
            return Err(Error::fix("sink.shared_column", message).hint(
                "pipelines that share a mart by rows must not meet in one: put the column into the key",
            ));
        }
        if self.is_to_come {
            return Ok(());
        }
        let known = self.column(column, "column of `shared`")?;
        const BY_TEXT: [u32; 6] = [20, 21, 23, 25, 1043, 2950];
        let sql = format!(
            "select (select not c.collisdeterministic from pg_attribute a join pg_collation c on c.oid = a.attcollation
                      where a.attrelid = {}::regclass and a.attname = {}), {}::{}::text",
            literal(&self.table),
            literal(column),
            literal(value),
            known.full_type
        );
        if !BY_TEXT.contains(&known.oid) {
            return Err(self.not_by_text(column, &known.full_type));
        }
        let asked = session.client.query_one(&sql, &[]).await;
        let row = asked.map_err(|error| {
            let message = format!("shared_value is no value of column {column:?} of {}", self.name);
            Error::fix("sink.shared_value", message).caused_by(session.explain(error))
        })?;
        if row.get::<_, Option<bool>>(0).unwrap_or(false) {
            return Err(self.not_by_text(column, "of a collation that is not deterministic"));
        }
        if row.get::<_, String>(1) != *value {
            let message = format!(
                "shared_value is not written as column {column:?} of {} writes it: {:?}",
                self.name,
                row.get::<_, String>(1)
            );
            return Err(Error::fix("sink.shared_value", message));
        }
        Ok(())
    }

    fn not_by_text(&self, column: &str, is: &str) -> Error {
        let message = format!("{} is shared by rows of {column}, which is {is}", self.name);
        Error::fix("sink.shared_column", message)
            .hint("the column is text, varchar, uuid or an integer, of a deterministic collation")
    }

    /// Own columns are set to NULL where the pipeline has no row, and are NULL in rows that another one creates.
    pub(super) fn require_own_columns(&self) -> Result<()> {
        let OwnPart::Columns(own) = &self.own else { return Ok(()) };
        let refuse = |column: &str, why: &str, hint: String| {
            let message = format!("{} is shared by columns, and its column {column:?} {why}", self.name);
            Err(Error::fix("sink.shared_column", message).hint(hint))
        };
        if own.is_empty() {
            let message = format!("{} is shared by columns, and the query returns its key alone", self.name);
            return Err(Error::fix("sink.shared_column", message)
                .hint("let it return the columns that this pipeline fills"));
        }
        let known = |name: &String| self.columns.iter().find(|column| column.name == *name);
        for column in own.iter().filter_map(known) {
            let (name, quoted) = (&column.name, identifier(&column.name));
            if self.touch_column.as_ref() == Some(name) {
                return refuse(name, "is its touch_column", "leave it out of the query".to_owned());
            }
            if column.not_null {
                let alter = format!("alter table {} alter column {quoted} drop not null", self.name);
                return refuse(name, "is NOT NULL: other pipelines create rows without it", alter);
            }
            if column.has_default {
                let alter = format!("alter table {} alter column {quoted} drop default", self.name);
                return refuse(name, "has a default: rows of other pipelines would have it", alter);
            }
        }
        Ok(())
    }

    /// Rows of others must not be written.
    pub(super) fn without_foreign_rows(
        &self,
        rows: &mut RecordBatch,
        rejected: &mut Vec<Reject>,
    ) -> Result<()> {
        let OwnPart::Rows { column, value } = &self.own else { return Ok(()) };
        let of = |row| nullable_texts(rows, std::slice::from_ref(column), row);
        let is_own = |row: usize| Ok(of(row)?[0].as_deref() == Some(value.as_str()));
        let stays: Vec<bool> = (0..rows.num_rows()).map(is_own).collect::<Result<_>>()?;
        if stays.iter().all(|stays| *stays) {
            return Ok(());
        }
        for row in (0..rows.num_rows()).filter(|row| !stays[*row]) {
            let message = format!("its {column} is not the shared_value of this pipeline");
            rejected.push(reject(rows, row, &self.key, "row.foreign", message)?);
        }
        *rows = keep(rows, &stays)?;
        Ok(())
    }
}
