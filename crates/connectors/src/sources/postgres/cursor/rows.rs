//! Rows of the query in the order of its own cursor. Rows that left the query are not noticed, so it is for queries
//! that no row leaves, and for those whose rows stand for no single table.

use arrow_array::RecordBatch;
use jiff::SignedDuration;
use vitrina_core::{Batch, Error, Reject, Result};

use super::checkpoint::Way;
use super::time::Kind;
use crate::arrow_text::texts;
use crate::rejects::{reject, without_flawed};
use crate::sources::postgres::estimate;
use crate::sources::postgres::reader::{Page, Piece, Reader};
use crate::sql::{OrderedColumn, compare, conditions, expressions};

/// Rows without a cursor that are told of: enough to run into any sensible limit.
const NULL_CURSORS: usize = 1000;

pub(super) struct RowCursor {
    columns: Vec<OrderedColumn>,
    names: Vec<String>,
    pub(super) kind: Kind,
    /// The target's key, by which rejects are named.
    key: Vec<String>,
    page: Option<Page>,
    /// The last cursor that was handed out: the next page begins behind it.
    seen: Option<Vec<String>>,
    /// Rows that the page was asked for.
    asked: usize,
    /// No two rows have the same cursor.
    unique: bool,
    /// The sink has had nothing yet.
    sink_waits: bool,
}

/// The next rows of a pass, which has moved behind them.
pub(super) struct Read {
    pub(super) rows: RecordBatch,
    pub(super) rows_read: u64,
    pub(super) rejected: Vec<Reject>,
}

impl Read {
    /// What is read as a batch; `None` when it is nothing.
    pub(super) fn batch(self, nothing: Batch) -> Option<Batch> {
        let Self { rows, rows_read, rejected } = self;
        let some = rows.num_rows() > 0 || !rejected.is_empty();
        some.then(|| Batch { rows, rejected, rows_read, ..nothing })
    }
}

impl RowCursor {
    pub(super) fn new(names: Vec<String>, key: &[String], unique: bool, reader: &Reader) -> Result<Self> {
        let columns = names.iter().map(|name| reader.ordered(name, "cursor")).collect::<Result<_>>()?;
        let first = reader.column(&names[0], "incremental_key")?;
        let kind = Kind::of(&first.name, first.type_oid, &first.type_name)?;
        Ok(Self {
            columns,
            names,
            kind,
            key: key.to_vec(),
            page: None,
            seen: None,
            asked: 0,
            unique,
            sink_waits: true,
        })
    }

    pub(super) fn first(&self) -> &OrderedColumn {
        &self.columns[0]
    }

    /// The greatest cursor there is, or is before another, as one array of texts.
    pub(super) fn greatest(&self, reader: &Reader, before: Option<&str>) -> String {
        let texts = self.columns.iter().map(|column| format!("{}::text", column.expression("q")));
        let (texts, query) = (texts.collect::<Vec<_>>().join(", "), &reader.query);
        let any_null = conditions(&self.columns, "q", "is null", " or ");
        let descending = conditions(&self.columns, "q", "desc", ", ");
        let before = before
            .map(|to| format!(" and {} < {}", self.columns[0].expression("q"), self.columns[0].value(to)));
        let before = before.unwrap_or_default();
        format!(
            "select array[{texts}] from {query} where not ({any_null}){before} order by {descending} limit 1"
        )
    }

    pub(super) async fn read(&mut self, reader: &Reader, way: &mut Way, start: Option<&str>) -> Result<Read> {
        let mut piece = self.piece(reader, way, start).await?;
        match way.finished {
            // Of a time that only Postgres knows no text can be made here: its row is refused, and nothing follows it.
            true => way.position.clone_from(&way.bound),
            false => way.position = self.reached(&piece.rows, piece.ends_page)?.or(way.position.take()),
        }
        let rows_read = piece.rows.num_rows() as u64;
        let mut rejected = Vec::new();
        without_flawed(&mut piece.rows, &mut rejected, &piece.flawed, &self.key)?;
        Ok(Read { rows: piece.rows, rows_read, rejected })
    }

    /// The next rows. A page that ends with nothing is passed over.
    async fn piece(&mut self, reader: &Reader, way: &mut Way, start: Option<&str>) -> Result<Piece> {
        loop {
            let mut page = match self.page.take() {
                Some(page) => page,
                None => {
                    let position = self.seen.take().or_else(|| way.position.clone());
                    self.asked = self.page_rows(reader);
                    reader.page(&self.tail(way, position.as_ref(), start)).await?
                }
            };
            let piece = page.next(reader, reader.batch_size).await?;
            way.finished = piece.ends_page && page.rows < self.asked;
            if !piece.ends_page {
                self.page = Some(page);
            }
            if piece.rows.num_rows() > 0 || way.finished {
                return Ok(piece);
            }
        }
    }

    /// Where nothing is lost by a page that ends, one is no more than a batch: it is read when the batch is, and no
    /// transaction stays open while that is written. Small batches share one, which has a price of its own.
    fn page_rows(&mut self, reader: &Reader) -> usize {
        let rows = match self.unique {
            true => reader.batch_size.max(1000.min(10 * reader.batch_size)),
            false => return reader.page_rows(),
        };
        let first = if std::mem::take(&mut self.sink_waits) { reader.first_rows() } else { usize::MAX };
        first.min(rows)
    }

    /// The page is given up; the next read opens one behind its position.
    pub(super) fn let_go(&mut self) -> bool {
        self.seen = None;
        self.page.take().is_some()
    }

    /// The last cursor that all rows of have come. Where a page is cut, its last cursor may go on behind the cut.
    fn reached(&mut self, rows: &RecordBatch, whole: bool) -> Result<Option<Vec<String>>> {
        let Some(last) = rows.num_rows().checked_sub(1) else { return Ok(None) };
        let key = texts(rows, &self.names, last)?;
        let before = self.seen.replace(key.clone());
        if whole || self.unique {
            return Ok(Some(key));
        }
        for row in (0..last).rev() {
            let earlier = texts(rows, &self.names, row)?;
            if earlier != key {
                return Ok(Some(earlier));
            }
        }
        Ok(before.filter(|before| *before != key))
    }

    /// With ties: rows that share the last cursor come with it, because the next page begins behind them.
    fn tail(&self, way: &Way, position: Option<&Vec<String>>, start: Option<&str>) -> String {
        let first = &self.columns[0];
        let after = match (position, start) {
            (Some(position), _) => format!("{} and ", compare(&self.columns, "q", ">", position)),
            (None, Some(start)) => format!("{} >= {} and ", first.expression("q"), first.cast(start)),
            (None, None) => String::new(),
        };
        let upto = way
            .bound
            .as_ref()
            .map_or_else(|| "false".to_owned(), |bound| compare(&self.columns, "q", "<=", bound));
        let order = expressions(&self.columns, "q");
        let ties = if self.unique { "only" } else { "with ties" };
        let whole = conditions(&self.columns, "q", "is not null", " and ");
        format!("where {after}{upto} and {whole} order by {order} fetch first {} rows {ties}", self.asked)
    }

    /// By the planner's estimate.
    pub(super) async fn rows_in_window(&self, reader: &Reader, late_window: SignedDuration) -> Result<u64> {
        let (first, seconds) = (&self.columns[0], late_window.as_secs());
        let tail = match self.kind {
            Kind::Number => String::new(),
            _ => {
                let start = first.cast(&format!("now() - {seconds} * interval '1 second'"));
                format!("where {} >= {start}", first.expression("q"))
            }
        };
        estimate::rows(reader, &tail).await
    }

    pub(super) async fn without_cursor(&self, reader: &Reader) -> Result<Vec<Reject>> {
        let any_null = conditions(&self.columns, "q", "is null", " or ");
        let mut page = reader.page(&format!("where {any_null} limit {NULL_CURSORS}")).await?;
        let mut rejected = Vec::new();
        loop {
            let piece = page.next(reader, usize::MAX).await?;
            for row in 0..piece.rows.num_rows() {
                rejected.push(no_cursor(&piece.rows, row, &self.key, &self.names)?);
            }
            if piece.ends_page {
                return Ok(rejected);
            }
        }
    }
}

/// A row that no pass will ever meet.
pub(super) fn no_cursor(rows: &RecordBatch, row: usize, key: &[String], names: &[String]) -> Result<Reject> {
    let message = format!("the cursor ({}) is NULL: changes of this row are not noticed", names.join(", "));
    reject(rows, row, key, "row.null_cursor", message)
        .map_err(|error| Error::defect("source.null_cursor", &error))
}
