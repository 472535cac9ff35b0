//! COPY out of and into tables of a live server.

use std::pin::pin;

use arrow_array::RecordBatch;
use bytes::{Bytes, BytesMut};
use futures_util::{SinkExt, TryStreamExt};
use tokio_postgres::Client;
use vitrina_pgcopy::{Column, Decoded, Decoder, Encoder, select_list};

pub(crate) fn quoted(name: &str) -> String {
    format!("\"{}\"", name.replace('"', "\"\""))
}

pub(crate) async fn describe(client: &Client, query: &str) -> Vec<Column> {
    let statement = client.prepare(query).await.expect("the query is right");
    statement.columns().iter().map(|column| Column::new(column.name(), column.type_().oid())).collect()
}

/// The rows of a query, none of them flawed.
pub(crate) async fn read(
    client: &Client,
    columns: &[Column],
    query: &str,
    max_rows: usize,
) -> Vec<RecordBatch> {
    let intact = |decoded: Decoded| {
        assert_eq!(decoded.flawed, []);
        decoded.rows
    };
    decoded(client, columns, query, max_rows).await.into_iter().map(intact).collect()
}

pub(crate) async fn decoded(
    client: &Client,
    columns: &[Column],
    query: &str,
    max_rows: usize,
) -> Vec<Decoded> {
    let copy = format!("copy (select {} from ({query}) q) to stdout (format binary)", select_list(columns));
    let mut stream = pin!(client.copy_out(&copy).await.expect("copy begins"));
    let mut decoder = Decoder::new(columns);
    let mut batches = Vec::new();
    while let Some(mut chunk) = stream.try_next().await.expect("copy goes on") {
        while decoder.push_until(&mut chunk, max_rows, usize::MAX).expect("postgres sends good bytes") {
            batches.push(decoder.take().expect("no error before"));
        }
    }
    assert!(decoder.is_finished());
    batches.push(decoder.take().expect("no error before"));
    batches
}

/// Creates a table that takes the batches and fills it.
pub(crate) async fn stage(client: &Client, batches: &[RecordBatch]) {
    let schema = batches[0].schema();
    let encoder = Encoder::new(schema.clone()).expect("every kind is known");
    let shape: Vec<_> = schema
        .fields()
        .iter()
        .zip(encoder.column_types())
        .map(|(field, kind)| format!("{} {kind}", quoted(field.name())))
        .collect();
    let create =
        format!("drop table if exists staging; create temporary table staging ({})", shape.join(", "));
    client.batch_execute(&create).await.expect("the types exist");
    write(client, "staging", batches).await;
}

pub(crate) async fn write(client: &Client, table: &str, batches: &[RecordBatch]) {
    let mut out = BytesMut::new();
    Encoder::header(&mut out);
    for batch in batches {
        let encoder = Encoder::new(batch.schema()).expect("every kind is known");
        encoder.encode(batch, &mut out).expect("every value came from postgres");
    }
    Encoder::trailer(&mut out);
    let copy = format!("copy {table} from stdin (format binary)");
    let mut sink = pin!(client.copy_in::<_, Bytes>(&copy).await.expect("copy begins"));
    sink.send(out.freeze()).await.expect("copy goes on");
    sink.finish().await.expect("postgres takes the bytes");
}

/// Rows of `a` without a row in `b` that is the same in its binary image and in its text.
pub(crate) async fn rows_apart(client: &Client, a: &str, b: &str) -> i64 {
    let sql = format!(
        "select count(*) from {a} a where not exists (
             select from {b} b where a.id = b.id and row(a.*)::record *= row(b.*)::record and a::text = b::text)"
    );
    client.query_one(&sql, &[]).await.expect("both tables have the same shape").get(0)
}
