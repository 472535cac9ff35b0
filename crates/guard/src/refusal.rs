//! What a source says to SQL that it is asked to look at or to run: a finding for its author, or trouble of its own.

use tokio_postgres::Client;
use tokio_postgres::error::{DbError, ErrorPosition, SqlState};

use crate::{DescribeError, Finding, marked};

/// SQL as it stands in the statement that was sent.
pub(crate) struct Sent<'a> {
    pub(crate) client: &'a Client,
    pub(crate) sql: &'a str,
    /// What stands before the wrapped SQL.
    pub(crate) before: &'a str,
    /// What the source was to do with it.
    pub(crate) doing: &'a str,
}

impl Sent<'_> {
    pub(crate) fn refused(&self, error: tokio_postgres::Error) -> DescribeError {
        match error.as_db_error().filter(|error| speaks_of_the_query(error)) {
            Some(refusal) => DescribeError::Sql(vec![self.finding(refusal)]),
            None => self.unanswered(error).into(),
        }
    }

    fn finding(&self, refusal: &DbError) -> Finding {
        let at = match refusal.position() {
            Some(ErrorPosition::Original(position)) => self.byte_in_query(*position),
            _ => 0,
        };
        let finding = Finding::at(self.sql, at, "sql.refused_by_source", marked(refusal));
        match refusal.hint().filter(|_| speaks_of_names(refusal)) {
            Some(hint) => finding.hint(hint),
            None => finding,
        }
    }

    /// The server counts characters of the whole statement, from 1.
    fn byte_in_query(&self, position: u32) -> usize {
        let before = self.before.chars().count() + "(\n".len() + 1;
        let characters = usize::try_from(position).unwrap_or(0).saturating_sub(before);
        self.sql.char_indices().nth(characters).map_or(self.sql.len(), |(at, _)| at)
    }

    pub(crate) fn unanswered(&self, error: tokio_postgres::Error) -> vitrina_core::Error {
        let message = format!("the source did not {} the query", self.doing);
        let unanswered = if self.client.is_closed() {
            vitrina_core::Error::release("source.connection", message)
        } else if error.code() == Some(&SqlState::LOCK_NOT_AVAILABLE) {
            vitrina_core::Error::release(
                "source.locked",
                format!("{message}: somebody holds a lock on its tables"),
            )
        } else {
            vitrina_core::Error::retry("source.unavailable", message)
        };
        unanswered.caused_by(error)
    }
}

/// Not of connections (08), resources (53), locks (55), operators (57), the system (58) or a bug (XX).
fn speaks_of_the_query(error: &DbError) -> bool {
    !["08", "40", "53", "55", "57", "58", "XX"].iter().any(|class| error.code().code().starts_with(class))
}

fn speaks_of_names(refusal: &DbError) -> bool {
    refusal.code().code().starts_with("42")
}
