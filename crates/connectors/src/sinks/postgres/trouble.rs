//! What a row can be refused for, told apart from all that ends the batch.

use tokio_postgres::error::DbError;
use vitrina_core::{Error, ErrorKind};

use crate::connection::Session;
use crate::delivery::Failure;

/// What went wrong while rows were written.
#[derive(Debug)]
pub(super) enum Trouble {
    /// One of the rows is to blame: the others may pass.
    Row(RowTrouble),
    /// The batch cannot pass, whatever its rows.
    Batch(Error),
}

#[derive(Debug, Clone)]
pub(super) struct RowTrouble {
    pub(super) code: &'static str,
    /// Another row has what must be unique.
    pub(super) is_repeated: bool,
    /// Names columns and constraints; values are marked.
    pub(super) message: String,
}

pub(super) type Tried<T> = Result<T, Trouble>;

impl From<Error> for Trouble {
    fn from(error: Error) -> Self {
        Self::Batch(error)
    }
}

impl From<Trouble> for Failure {
    fn from(trouble: Trouble) -> Self {
        match trouble {
            Trouble::Row(row) => {
                Self::Row(Error::fix("sink.refused", row.message).of_kind(ErrorKind::StatementRefused))
            }
            Trouble::Batch(error) => Self::Batch(error),
        }
    }
}

impl Trouble {
    /// The target's answer to rows that were sent to it.
    pub(super) fn of(session: &Session, error: tokio_postgres::Error) -> Self {
        let row = error.as_db_error().and_then(row_trouble);
        let explained = session.explain(error);
        match row {
            Some((code, is_repeated)) => {
                Self::Row(RowTrouble { code, is_repeated, message: explained.with_values() })
            }
            None => Self::Batch(explained),
        }
    }

    /// A row that cannot even be put on the wire.
    pub(super) fn unwritable(error: &vitrina_pgcopy::Error) -> Self {
        match error {
            vitrina_pgcopy::Error::Value { .. } => Self::Row(RowTrouble {
                code: "row.unwritable",
                is_repeated: false,
                message: error.to_string(),
            }),
            other => {
                Self::Batch(Error::fix("sink.unwritable", format!("the rows cannot be written: {other}")))
            }
        }
    }
}

/// States that say nothing about the rows: connections, transactions, rights, resources, the statement itself.
/// Whatever else the mart answers, a row has raised it: data exceptions, constraints, limits of the server's
/// types and indexes, triggers with states of their own. Two rows of one key in one statement count as well.
const OF_THE_BATCH: [&str; 24] = [
    "08", "09", "0A", "0B", "20", "24", "25", "26", "28", "2B", "2D", "34", "3B", "3D", "3F", "40", "42",
    "53", "55", "57", "58", "F0", "VT", "XX",
];

fn row_trouble(refusal: &DbError) -> Option<(&'static str, bool)> {
    let state = refusal.code().code();
    if OF_THE_BATCH.iter().any(|class| state.starts_with(class)) {
        return None;
    }
    let code = match state {
        "22001" => "row.too_long",
        "22003" => "row.out_of_range",
        "22P02" | "22P03" | "22007" | "22008" => "row.invalid_value",
        "23502" => "row.not_null",
        "23503" => "row.foreign_key",
        "23505" | "23P01" => "row.unique",
        "23514" => "row.check",
        "21000" => "row.duplicate_key",
        state if state.starts_with("P0") => "row.raised",
        _ => "row.refused",
    };
    Some((code, matches!(state, "23505" | "23P01")))
}
