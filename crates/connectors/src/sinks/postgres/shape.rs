//! The rows of a query beside the columns of a mart: what goes where, by which type it travels, and what
//! cannot work. Found before the first row is read, not in batch 500.

use arrow_schema::{Field, Fields, Schema};
use vitrina_core::{Error, Result};
use vitrina_pgcopy::{Encoder, Kind, Scalar};

use super::declared::Declared;
use super::mart::{Mart, MartColumn};
use crate::sql::identifier;

/// `character(n)`.
const PADDED: u32 = 1042;

#[derive(Debug)]
pub(super) struct Shape {
    pub(super) fields: Fields,
    pub(super) written: Vec<WrittenColumn>,
}

/// One written column: by which type it travels, and where it goes.
#[derive(Debug)]
pub(super) struct WrittenColumn {
    pub(super) column: MartColumn,
    /// The type that takes the bytes as they travel.
    pub(super) staged_type: String,
    /// The mart's column takes the same bytes.
    native: bool,
    /// Equal bytes are equal values, and come out as they went in.
    plain: bool,
    /// Spaces behind so many characters would be cut without a word.
    pub(super) cuts_behind: Option<usize>,
}

impl Shape {
    /// Of rows that are to come, or are there.
    pub(super) fn new(mart: &Mart, schema: &Schema) -> Result<Self> {
        let shape = Self::of_none(mart, schema)?;
        shape.require_the_required(mart)?;
        Ok(shape)
    }

    /// Of a batch without rows: what they would have to fill is not missing.
    pub(super) fn of_none(mart: &Mart, schema: &Schema) -> Result<Self> {
        let encoder = Encoder::new(std::sync::Arc::new(schema.clone()))
            .map_err(|error| Error::fix("sink.unwritable", format!("the rows cannot be written: {error}")))?;
        let types = encoder.column_types();
        let one = |(field, staged_type): (&std::sync::Arc<Field>, _)| written(mart, field, staged_type);
        let written = schema.fields().iter().zip(types).map(one).collect::<Result<_>>()?;
        let shape = Self { fields: schema.fields().clone(), written };
        shape.require_key(mart)?;
        Ok(shape)
    }

    /// Postgres rounds and drops without a word as it writes: less would arrive than was read. What a function has made
    /// has no declared type, and is judged by its kind alone.
    pub(super) fn require_whole(&self, mart: &Mart) -> Result<()> {
        for (field, WrittenColumn { column, .. }) in self.fields.iter().zip(&self.written) {
            let Some(query) = field.metadata().get("pg_type").map(|declared| Declared::parse(declared))
            else {
                continue;
            };
            let taken = Declared::parse(&column.base_type);
            if column.is_opaque {
                return Err(opaque(mart, column));
            }
            if !taken.takes(&query) {
                return Err(rounds(mart, field, column));
            }
            let folds = column.folds_texts && !field.metadata().contains_key("pg_folds_texts");
            if mart.is_key(&column.name) && (folds || !taken.tells_apart(&query)) {
                return Err(merges_keys(mart, field, column));
            }
        }
        Ok(())
    }

    /// Of rows that lie in a table with these columns of the mart, and its types.
    pub(super) fn gathered(mart: &Mart, names: &[String]) -> Result<Self> {
        let written = |name: &String| {
            let column = mart.column(name, "column of the load")?.clone();
            let staged_type = column.full_type.clone();
            Ok(WrittenColumn { staged_type, native: true, plain: false, cuts_behind: None, column })
        };
        let field = |name: &String| Field::new(name, arrow_schema::DataType::Utf8, true);
        let shape = Self {
            fields: names.iter().map(field).collect(),
            written: names.iter().map(written).collect::<Result<_>>()?,
        };
        shape.require_key(mart)?;
        Ok(shape)
    }

    /// COPY may go straight into a table with the mart's types.
    pub(super) fn is_native(&self) -> bool {
        self.written.iter().all(|written| written.native)
    }

    /// Rows of one key can be told by the bytes of their key alone.
    pub(super) fn has_plain_key(&self, mart: &Mart) -> bool {
        let of_key = |written: &&WrittenColumn| mart.is_key(&written.column.name);
        self.written.iter().filter(of_key).all(|written| written.plain)
    }

    pub(super) fn names(&self) -> String {
        let names = self.written.iter().map(|written| identifier(&written.column.name));
        names.collect::<Vec<_>>().join(", ")
    }

    fn writes(&self, name: &str) -> bool {
        self.fields.iter().any(|field| field.name() == name)
    }

    /// The touch column, unless the query brings it itself.
    pub(super) fn touch<'a>(&self, mart: &'a Mart) -> Option<&'a str> {
        mart.touch_column.as_deref().filter(|touch| !self.writes(touch))
    }

    fn require_key(&self, mart: &Mart) -> Result<()> {
        let missing = mart.key.iter().find(|name| !self.writes(name));
        missing.map_or(Ok(()), |name| {
            Err(Error::fix(
                "sink.missing_key",
                format!("the query returns no column {name:?}, which is in the key of {}", mart.name),
            ))
        })
    }

    fn require_the_required(&self, mart: &Mart) -> Result<()> {
        let filled = |name: &str| self.writes(name) || mart.touch_column.as_deref() == Some(name);
        let missing = |column: &&MartColumn| column.required && !filled(&column.name);
        let missing: Vec<_> =
            mart.columns.iter().filter(missing).map(|column| column.name.as_str()).collect();
        if missing.is_empty() {
            return Ok(());
        }
        let columns = missing.join(", ");
        Err(Error::fix("sink.missing_column", format!("the query does not fill {columns} of {}", mart.name))
            .hint("they are NOT NULL without a default: add them to the query, or give them a default"))
    }
}

impl WrittenColumn {
    /// A staged value as a value of the mart's column. Text for text is assigned as it is, because an
    /// explicit cast would cut what is too long.
    pub(super) fn staged(&self, alias: &str) -> String {
        let value = format!("{alias}.{}", identifier(&self.column.name));
        if self.native || (self.staged_type == "text" && self.column.is_text) {
            value
        } else {
            format!("{value}::{}", self.column.type_name)
        }
    }

    /// Equal values of it may have several forms. What pads a text means nothing.
    pub(super) fn may_be_respelled(&self) -> bool {
        !self.plain && self.column.oid != PADDED
    }

    /// The same for comparison with the mart's column, where types must be equal and nothing is assigned.
    pub(super) fn compared(&self, alias: &str) -> String {
        self.key(&format!("{alias}.{}", identifier(&self.column.name)))
    }

    /// A value as the mart would keep it: two that it would round to one are one. Text is not cut.
    fn key(&self, value: &str) -> String {
        let kind = if self.column.is_text { &self.column.type_name } else { &self.column.full_type };
        format!("{value}::{kind}")
    }
}

fn written(mart: &Mart, field: &Field, staged_type: impl Into<String>) -> Result<WrittenColumn> {
    if !mart.has(field.name()) {
        return Err(lacks_column(mart, field));
    }
    let column = mart.column(field.name(), "column of the query")?.clone();
    let kind = Kind::of_field(field);
    let declared = field.metadata().get("pg_type").map(|declared| Declared::parse(declared));
    if kind.is_some_and(|kind| loses(kind, Kind::of_oid(column.oid))) {
        return Err(rounds(mart, field, &column));
    }
    let longest = Declared::parse(&column.base_type).longest();
    let cuts_behind =
        longest.filter(|longest| !declared.as_ref().is_some_and(|declared| declared.fits_within(*longest)));
    let native = kind.is_some_and(|kind| kind.is_native() && kind == Kind::of_oid(column.oid));
    use Scalar::{Bool, Bytea, Date, Int2, Int4, Int8, Text, Timestamp, Timestamptz, Uuid};
    let by_bytes =
        [Bool, Bytea, Date, Int2, Int4, Int8, Text, Timestamp, Timestamptz, Uuid].map(Kind::Scalar);
    let by_bytes = kind.is_some_and(|kind| by_bytes.contains(&kind));
    let plain = native
        && by_bytes
        && column.oid != PADDED
        && (column.is_text || !column.rounds)
        && !column.folds_texts;
    Ok(WrittenColumn { column, staged_type: staged_type.into(), native, plain, cuts_behind })
}

fn rounds(mart: &Mart, field: &Field, column: &MartColumn) -> Error {
    let (name, full_type) = (field.name(), &column.full_type);
    let returned = field.metadata().get("pg_type").map_or("another type", String::as_str);
    let message = format!(
        "column {name:?} of {} is {full_type}, and the query returns {returned}: values would be rounded or changed in silence",
        mart.name,
    );
    Error::fix("sink.type_mismatch", message).hint(format!(
        "cast the column in the query to the mart's type, {}::{}, if that is wanted; or give the mart's column the type that the query returns",
        identifier(name),
        column.base_type
    ))
}

fn opaque(mart: &Mart, column: &MartColumn) -> Error {
    let message = format!(
        "column {:?} of {} is {}: whether values arrive whole in a composite type, or in an array of domains, cannot be seen",
        column.name, mart.name, column.full_type
    );
    Error::fix("sink.type_mismatch", message)
        .hint("make it columns of their own, or text or jsonb, and let the query return that")
}

/// Rows that the source tells apart would be one row here: when one of them is deleted, so is the other.
fn merges_keys(mart: &Mart, field: &Field, column: &MartColumn) -> Error {
    let (name, full_type) = (field.name(), &column.full_type);
    let returned = field.metadata().get("pg_type").map_or("another type", String::as_str);
    let message = format!(
        "{name:?} in the key of {} is {full_type}, and the query returns {returned}: rows with different keys could become one",
        mart.name,
    );
    Error::fix("sink.key_type", message).hint(format!(
        "cast the column in the query, {}::{}, so that the source compares keys as the mart does; or give the mart's column the type and collation that the query returns",
        identifier(name),
        column.base_type
    ))
}

/// Postgres would assign these without a word, and less would arrive than was read.
fn loses(query: Kind, mart: Kind) -> bool {
    use Scalar::{Date, Float4, Float8, Int2, Int4, Int8, Numeric, Time, Timestamp, Timestamptz};
    let (Kind::Scalar(query), Kind::Scalar(mart)) = (query, mart) else { return false };
    match query {
        Numeric => matches!(mart, Int2 | Int4 | Int8 | Float4 | Float8),
        Float4 | Float8 if matches!(mart, Int2 | Int4 | Int8 | Numeric) => true,
        Float8 => mart == Float4,
        Timestamp | Timestamptz => matches!(mart, Date | Time),
        _ => false,
    }
}

/// A column that the query has and the mart lacks: with the statement that adds it.
fn lacks_column(mart: &Mart, field: &Field) -> Error {
    let known: Vec<_> = mart.columns.iter().map(|column| column.name.as_str()).collect();
    let alter = super::create::add_column(mart, field);
    let message = format!("{} has no column {:?}, which the query returns", mart.name, field.name());
    Error::fix("sink.extra_column", message)
        .hint(format!("its columns: {}; to add it: {alter} (`vitrina mart` does it when asked); or leave it out of the query", known.join(", ")))
}
