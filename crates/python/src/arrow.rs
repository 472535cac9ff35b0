//! Batches as an Arrow stream of one record batch.

use std::io::Cursor;
use std::sync::Arc;

use arrow_array::{ArrayRef, RecordBatch, RecordBatchOptions};
use arrow_ipc::reader::StreamReader;
use arrow_ipc::writer::StreamWriter;
use arrow_schema::{ArrowError, FieldRef, Schema};
use vitrina_core::values::value;
use vitrina_core::{Error, Result};

pub(crate) fn write(rows: &RecordBatch) -> Result<Vec<u8>> {
    let unwritable = |error: ArrowError| Error::defect("python.rows", &error);
    let mut bytes = Vec::with_capacity(rows.get_array_memory_size() + 4096);
    let mut writer = StreamWriter::try_new(&mut bytes, &rows.schema()).map_err(unwritable)?;
    writer.write(rows).map_err(unwritable)?;
    writer.finish().map_err(unwritable)?;
    drop(writer);
    Ok(bytes)
}

pub(crate) fn read(bytes: &[u8], task: &str) -> Result<RecordBatch> {
    let unreadable = |error: ArrowError| {
        Error::fix(
            "python.contract",
            format!("python task {task:?} has returned no Arrow batch: {}", value(&error.to_string())),
        )
    };
    let mut reader = StreamReader::try_new(Cursor::new(bytes), None).map_err(unreadable)?;
    match reader.next() {
        Some(rows) => rows.map_err(unreadable),
        None => Ok(RecordBatch::new_empty(reader.schema())),
    }
}

pub(crate) fn batch(fields: Vec<FieldRef>, columns: Vec<ArrayRef>, rows: usize) -> Result<RecordBatch> {
    let options = RecordBatchOptions::new().with_row_count(Some(rows));
    RecordBatch::try_new_with_options(Arc::new(Schema::new(fields)), columns, &options)
        .map_err(|error| Error::defect("python.rows", &error))
}
