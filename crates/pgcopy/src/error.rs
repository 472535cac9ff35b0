//! What can be wrong with bytes or batches. Messages name columns and never hold values.

use arrow_schema::DataType;

pub type Result<T, E = Error> = std::result::Result<T, E>;

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    #[error("malformed COPY data: {0}")]
    Malformed(&'static str),
    #[error("malformed COPY data: a row of {found} fields where {expected} columns are described")]
    FieldCount { expected: usize, found: i16 },
    /// A value that cannot be encoded. One that cannot be decoded is in `Decoded::flawed`.
    #[error("column \"{column}\": {flaw}")]
    Value { column: String, flaw: Flaw },
    #[error("1 GiB of decoded rows is waiting\nhint: take them before pushing more")]
    Full,
    #[error("the decoder failed earlier and cannot go on")]
    Broken,
    #[error(
        "column \"{column}\": arrow type {data_type} has no postgres form here\nhint: use Boolean, Int16, \
         Int32, Int64, Float32, Float64, Utf8, Binary, Date32, Time64(µs), Timestamp(µs), \
         Interval(MonthDayNano), FixedSizeBinary(16) or a List of one of these"
    )]
    UnsupportedType { column: String, data_type: DataType },
    #[error("{0} columns are more than one COPY can carry")]
    TooManyColumns(usize),
    #[error("a batch does not have the columns its encoder was made for: {0}")]
    OtherColumns(String),
}

/// What is wrong with one value.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Flaw {
    #[error("a value of {found} bytes where its type has {expected}")]
    Length { expected: usize, found: usize },
    #[error("a malformed {0}")]
    Malformed(&'static str),
    #[error("text that is not utf-8\nhint: convert it in the query, or cast the column to bytea")]
    NotUtf8,
    #[error("text with a NUL character, which postgres cannot hold\nhint: remove it in a transform")]
    Nul,
    #[error("a date, time or interval that does not fit\nhint: cast the column to text in the query")]
    OutOfRange,
    #[error("an interval with a fraction of a microsecond\nhint: round it in a transform")]
    Precision,
    #[error(
        "text that is no numeric\nhint: write digits with a point and an exponent at most, NaN or Infinity"
    )]
    NotNumeric,
    #[error("a numeric with more than 131072 digits before the point or 16383 after it")]
    NumericRange,
    #[error(
        "an array of several dimensions or with another lower bound than 1\nhint: cast the column to text \
         in the query"
    )]
    Dimensions,
    #[error("a value that takes more than 1 GiB")]
    TooLong,
}

impl Flaw {
    pub(crate) fn of(self, column: &str) -> Error {
        Error::Value { column: column.to_owned(), flaw: self }
    }
}
