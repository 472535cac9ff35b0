//! A table of every kind through COPY, decoder, encoder and COPY into a second table of the same shape.

use std::pin::pin;

use arrow_array::RecordBatch;
use bytes::{Bytes, BytesMut};
use futures_util::{SinkExt, TryStreamExt};
use tokio_postgres::Client;
use vitrina_pgcopy::{Column, Decoder, Encoder, Kind, select_list};
use vitrina_testbed::Database;

const SHAPE: &[(&str, &str)] = &[
    ("id", "int8"),
    ("flag", "bool"),
    ("small", "int2"),
    ("medium", "int4"),
    ("single", "float4"),
    ("double", "float8"),
    ("a \"quoted\" text", "text"),
    ("short", "varchar(20)"),
    ("padded", "char(6)"),
    ("ident", "name"),
    ("raw", "bytea"),
    ("born", "date"),
    ("local", "timestamp"),
    ("seen", "timestamptz"),
    ("key", "uuid"),
    ("price", "numeric"),
    ("tags", "text[]"),
    ("facts", "jsonb"),
    ("length", "interval"),
    ("mood", "mood"),
    ("address", "inet"),
    ("letter", "\"char\""),
];

/// The outermost values of every type, infinities, what is not a number, what is empty, and NULL.
/// 294247-01-10 is the last timestamp that Arrow can count; Postgres goes on for 29 years.
const ROWS: &[&str] = &[
    "-9223372036854775808, false, -32768, -2147483648, '-3.4028235e38', '-1.7976931348623157e308',
     '', '', '', '', '', '4713-01-01 BC', '4713-01-01 00:00:00 BC', '4713-01-01 00:00:00+00 BC',
     '00000000-0000-0000-0000-000000000000', -1.50, '{}', '{}', '-178000000 years', 'sad', '::', ''",
    r#"9223372036854775807, true, 32767, 2147483647, '3.4028235e38', '1.7976931348623157e308',
     repeat('фильм 🎬', 9999), 'двадцать букв ровно!', 'ab', repeat('n', 63), '\x00ff00',
     '5874897-12-31', '294247-01-10 04:00:54.775806', '294247-01-10 04:00:54.775806+00',
     'ffffffff-ffff-ffff-ffff-ffffffffffff', 12345678901234567890.123456789000, '{a,NULL,"b,\""}',
     '{"a": [1, null]}', '1 mon 2 days 03:04:05.000006', 'glad', '10.0.0.0/8', 'x'"#,
    r"0, null, 0, 0, 'infinity', '-infinity', E'line\ntab\t\\N', 'x', 'x', 'x', null,
     'infinity', 'infinity', 'infinity', gen_random_uuid(), 'NaN', null, 'null', '0', null, null, null",
    r"1, null, 1, 1, '-infinity', 'infinity', ' ', ' ', ' ', ' ', '\x00',
     '-infinity', '-infinity', '-infinity', gen_random_uuid(), 'infinity', '{{1,2},{3,4}}', '0', '1 us',
     null, null, null",
    "2, null, 2, 2, 'nan', 'nan', 'x', 'x', 'x', 'x', 'x', '1970-01-01', '1999-12-31 23:59:59.999999',
     '1970-01-01 00:00:00+00', gen_random_uuid(), 1.0, '{}', '1', '1 year', null, null, null",
    "3, null, null, null, '-0', '-0', null, null, null, null, null, null, null, null, null, null, null,
     null, null, null, null, null",
];

fn quoted(name: &str) -> String {
    format!("\"{}\"", name.replace('"', "\"\""))
}

async fn create_tables(database: &Database) {
    let shape: Vec<_> = SHAPE.iter().map(|(name, kind)| format!("{} {kind}", quoted(name))).collect();
    let shape = shape.join(", ");
    database.execute("create type mood as enum ('sad', 'glad')").await;
    database.execute(&format!("create table source ({shape}); create table target ({shape})")).await;
    for row in ROWS {
        database.execute(&format!("insert into source values ({row})")).await;
    }
    let nulls = vec!["null"; SHAPE.len()].join(", ");
    database.execute(&format!("insert into source values ({nulls}), ({nulls})")).await;
    // Enough rows for many chunks and batches.
    database
        .execute("insert into source (id, price) select i, i / 7.0 from generate_series(10, 999) i")
        .await;
}

async fn describe(client: &Client, table: &str) -> Vec<Column> {
    let statement = client.prepare(&format!("select * from {table}")).await.expect("the table is there");
    statement.columns().iter().map(|column| Column::new(column.name(), column.type_().oid())).collect()
}

async fn read(client: &Client, columns: &[Column], max_rows: usize) -> Vec<RecordBatch> {
    let copy = format!("copy (select {} from source) to stdout (format binary)", select_list(columns));
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

async fn stage(client: &Client, batches: &[RecordBatch]) {
    let schema = batches[0].schema();
    let encoder = Encoder::new(schema.clone()).expect("every kind is known");
    let shape: Vec<_> = schema
        .fields()
        .iter()
        .zip(encoder.column_types())
        .map(|(field, kind)| format!("{} {kind}", quoted(field.name())))
        .collect();
    let create = format!("create temporary table staging ({})", shape.join(", "));
    client.batch_execute(&create).await.expect("the types exist");

    let mut out = BytesMut::new();
    Encoder::header(&mut out);
    for batch in batches {
        encoder.encode(batch, &mut out).expect("every value came from postgres");
    }
    Encoder::trailer(&mut out);
    let sink = client.copy_in::<_, Bytes>("copy staging from stdin (format binary)").await;
    let mut sink = pin!(sink.expect("copy begins"));
    sink.send(out.freeze()).await.expect("copy goes on");
    sink.finish().await.expect("postgres takes the bytes");
}

async fn cast_back(client: &Client) {
    let casts: Vec<_> = SHAPE.iter().map(|(name, kind)| format!("{}::{kind}", quoted(name))).collect();
    let insert = format!("insert into target select {} from staging", casts.join(", "));
    client.batch_execute(&insert).await.expect("text casts back");
}

/// The row's text tells apart what Postgres calls equal: 1.0 and 1.00, 0 and -0.
async fn rows_missing(database: &Database, from: &str, of: &str) -> i64 {
    let rows = |table| format!("select t.*, t::text from {table} t");
    let difference = format!("{} except all {}", rows(of), rows(from));
    database.value(&format!("select count(*) from ({difference}) missing")).await
}

#[tokio::test]
async fn every_kind_of_postgres_value_survives_copy_out_and_in() {
    let database = Database::fresh().await;
    create_tables(&database).await;
    let client = database.client().await;
    let columns = describe(&client, "source").await;

    let batches = read(&client, &columns, 100).await;
    stage(&client, &batches).await;
    cast_back(&client).await;

    let sizes: Vec<_> = batches.iter().map(RecordBatch::num_rows).collect();
    assert_eq!(sizes, [100, 100, 100, 100, 100, 100, 100, 100, 100, 98]);
    assert_eq!(rows_missing(&database, "target", "source").await, 0);
    assert_eq!(rows_missing(&database, "source", "target").await, 0);
}

#[tokio::test]
async fn postgres_describes_the_built_in_types_as_their_kinds() {
    let database = Database::fresh().await;
    create_tables(&database).await;
    let columns = describe(&database.client().await, "source").await;
    let kinds: Vec<_> = columns.iter().map(Column::kind).collect();
    let native = [
        Kind::Int8,
        Kind::Bool,
        Kind::Int2,
        Kind::Int4,
        Kind::Float4,
        Kind::Float8,
        Kind::Text,
        Kind::Text,
        Kind::Text,
        Kind::Text,
        Kind::Bytea,
        Kind::Date,
        Kind::Timestamp,
        Kind::Timestamptz,
        Kind::Uuid,
    ];
    assert_eq!(kinds[..native.len()], native);
    assert!(kinds[native.len()..].iter().all(|kind| *kind == Kind::AsText));
}
