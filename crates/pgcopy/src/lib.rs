//! Postgres COPY BINARY to Arrow and back. No I/O: bytes in, `RecordBatch` out, and the reverse.
//!
//! Describe a query's columns, read `copy (select <select_list> from …) to stdout (format binary)`
//! through a `Decoder`, and write what an `Encoder` makes of the batches with `copy … from stdin
//! (format binary)` into a staging table of the encoder's `column_types`.

mod array;
mod builder;
pub mod calendar;
mod cells;
mod column;
mod decode;
mod encode;
mod epoch;
mod error;
mod frame;
mod interval;
mod jsonb;
mod kind;
mod numeric;
mod scalar;

pub use column::{Column, arrow_schema, select_list};
pub use decode::{Decoded, Decoder, Flawed};
pub use encode::Encoder;
pub use error::{Error, Flaw, Result};
pub use kind::Kind;
pub use scalar::Scalar;

/// Opens every COPY BINARY stream; its odd bytes give away a transfer that is not 8-bit clean.
const SIGNATURE: &[u8; 11] = b"PGCOPY\n\xff\r\n\0";
/// Stands for a field count and ends the stream.
const TRAILER: i16 = -1;
/// Stands for a field's length.
const NULL: i32 = -1;
