//! A backfill over a range of the cursor: its rows are read again, and the checkpoint stays where it is.

use vitrina_core::{Batch, CursorRange, Error, Position, Result};

use super::checkpoint::Way;
use super::track::Range;
use super::{Cursor, Driver};
use crate::sources::postgres::reader::Reader;
use crate::sql::{OrderedColumn, literal};

pub(in crate::sources::postgres) struct RangeBackfill {
    cursor: Cursor,
    range: CursorRange,
    /// Known once the first batch is asked for.
    way: Option<Way>,
}

impl RangeBackfill {
    pub(in crate::sources::postgres) fn new(cursor: Cursor, range: CursorRange) -> Self {
        Self { cursor, range, way: None }
    }

    pub(in crate::sources::postgres) async fn read(
        &mut self,
        reader: &mut Reader,
        from: &Position,
    ) -> Result<Option<Batch>> {
        let mut way = match self.way.take() {
            Some(way) => way,
            None => self.open(reader).await?,
        };
        let range = Range { start: self.range.from.as_deref().map(literal), ..Range::default() };
        let mut batch = None;
        while batch.is_none() && !way.finished {
            batch = self.cursor.drive(reader, &mut way, &range, from).await?;
        }
        let backfilled_to = way.position.clone();
        self.way = Some(way);
        Ok(batch.map(|batch| Batch { backfilled_to, ..batch }))
    }

    pub(in crate::sources::postgres) fn let_go(&mut self) -> bool {
        self.cursor.let_go()
    }

    /// It ends at the greatest cursor that is there now: rows that are written meanwhile are the next pass's.
    async fn open(&self, reader: &Reader) -> Result<Way> {
        self.refuse_other_types(reader).await?;
        let to = self.range.to.as_deref();
        let greatest = match &self.cursor.driver {
            Driver::Keys(track) | Driver::Table(track, _) => track.greatest(to),
            Driver::Query(rows) => rows.greatest(reader, to),
        };
        let bound: Option<Vec<String>> = reader.row(&format!("select ({greatest})")).await?.get(0);
        Ok(Way { finished: bound.is_none(), bound, position: self.range.at.clone(), ..Way::default() })
    }

    async fn refuse_other_types(&self, reader: &Reader) -> Result<()> {
        let cursor = match &self.cursor.driver {
            Driver::Keys(track) | Driver::Table(track, _) => track.first(),
            Driver::Query(rows) => rows.first(),
        };
        for end in [&self.range.from, &self.range.to].into_iter().flatten() {
            let cast = reader.row(&format!("select {}", cursor.value(end))).await;
            cast.map_err(|error| if error.is_refused() { no_value(end, cursor) } else { error })?;
        }
        Ok(())
    }
}

fn no_value(end: &str, cursor: &OrderedColumn) -> Error {
    let (name, type_name) = (&cursor.name, cursor.type_name());
    Error::fix("backfill.range", format!("{end:?} is no value of incremental_key {name:?}, a {type_name}"))
        .hint("give the ends of the range as the source's server reads them, such as 2026-01-31T12:00:00Z for a time")
}
