//! The outermost and oddest values of every type through COPY, decoder, encoder and COPY back.

use arrow_array::RecordBatch;
use tokio_postgres::Client;
use vitrina_pgcopy::{Column, Decoded, Flaw, Kind, Scalar};
use vitrina_testbed::Database;

use crate::samples::SCALARS;
use crate::server::{decoded, describe, quoted, read, rows_apart, stage, write};

/// Types that travel in binary, with values of theirs. 294247-01-10 is the last timestamp that Arrow
/// can count; Postgres goes on for 29 years. 2562047 hours are the most that fit nanoseconds.
const NATIVE: &[(&str, &[&str])] = &[
    ("bool", &["true", "false"]),
    ("int2", &["-32768", "32767", "0"]),
    ("int4", &["-2147483648", "2147483647", "0"]),
    ("int8", &["-9223372036854775808", "9223372036854775807", "0"]),
    ("float4", &["-3.4028235e38", "1e-45", "0.1", "-0", "nan", "infinity", "-infinity"]),
    ("float8", &["1e308", "-1.7976931348623157e308", "5e-324", "0.1", "-0", "nan", "infinity", "-infinity"]),
    (
        "numeric",
        &[
            "0",
            "0.0",
            "0.00",
            "1",
            "1.0",
            "1.00",
            "-1.50",
            "10000",
            "99999999",
            "0.0001",
            "0.00001",
            "12345678901234567890.123456789000",
            "1e131071",
            "-1e131071",
            "1e-16383",
            "nan",
            "infinity",
            "-infinity",
        ],
    ),
    ("numeric(12,4)", &["0", "-12345678.9", "99999999.9999", "0.0001", "nan"]),
    ("text", &["", " ", "line\nbreak\ttab\\N", "фильм 🎬", "\u{10ffff}\u{1}"]),
    ("varchar(20)", &["", "двадцать букв ровно!", "trailing  "]),
    ("char(6)", &["", "ab", "шесть!"]),
    ("name", &["", "ident"]),
    ("bytea", &["", "\\x00", "\\x00ff00", "\\xdeadbeef"]),
    ("date", &["4714-11-24 BC", "0001-01-01", "1970-01-01", "5874897-12-31", "infinity", "-infinity"]),
    ("time", &["00:00", "23:59:59.999999", "24:00:00", "12:34:56.000001"]),
    ("time(0)", &["23:59:59", "24:00:00"]),
    (
        "timestamp",
        &[
            "4714-11-24 00:00:00 BC",
            "1999-12-31 23:59:59.999999",
            "1970-01-01",
            "294247-01-10 04:00:54.775806",
            "infinity",
            "-infinity",
        ],
    ),
    (
        "timestamptz",
        &[
            "4714-11-24 00:00:00+00 BC",
            "1970-01-01 00:00:00+00",
            "294247-01-10 04:00:54.775806+00",
            "2024-05-06 07:08:09.101112+03",
            "infinity",
            "-infinity",
        ],
    ),
    (
        "interval",
        &[
            "0",
            "-178000000 years",
            "178000000 years",
            "1 mon -2 days 03:04:05.000006",
            "2562047:47:16.854775",
            "-2562047:47:16.854775",
            "-2147483648 days",
            "1 us",
        ],
    ),
    ("uuid", &["00000000-0000-0000-0000-000000000000", "ffffffff-ffff-ffff-ffff-ffffffffffff"]),
    ("json", &["null", " { \"b\" : 1, \"b\" : 1.00 } ", "\"\\u0000\"", "[]"]),
    ("jsonb", &["null", "{\"b\": [1.00, null], \"ключ\": \"🎬\\n\"}", "\"\"", "1e3"]),
];

/// Types that travel as text, and a domain, which the server describes as its base type.
const OTHERS: &[(&str, &[&str])] = &[
    ("mood", &["sad", "glad"]),
    ("mood[]", &["{sad,NULL}"]),
    ("positive", &["1"]),
    ("positive[]", &["{1}"]),
    ("timetz", &["24:00:00+03:30"]),
    ("int4range", &["[1,5)", "empty"]),
    ("numrange", &["(,1.00]"]),
    ("inet", &["::", "10.0.0.0/8"]),
    ("\"char\"", &["", "x"]),
    ("bit(3)", &["101"]),
    ("xml", &["<a/>"]),
    ("money", &["1.5"]),
    ("point", &["(1,-0)"]),
    ("tsvector", &["a:1"]),
    ("oid", &["4294967295"]),
    ("int2vector", &["1 2"]),
];

fn literal(text: &str) -> String {
    format!("'{}'", text.replace('\'', "''"))
}

/// An array of all values of a type, with a NULL among them, and an empty one.
fn arrays(values: &[&str]) -> [String; 2] {
    let items: Vec<_> = values
        .iter()
        .map(|value| format!("\"{}\"", value.replace('\\', "\\\\").replace('"', "\\\"")))
        .collect();
    [format!("{{NULL,{}}}", items.join(",")), "{}".to_owned()]
}

struct Sample {
    column: String,
    data_type: String,
    values: Vec<String>,
}

/// Every type, and the array of every native one.
fn samples() -> Vec<Sample> {
    let sample = |data_type: String, values: Vec<String>| Sample {
        column: format!("a \"{data_type}\""),
        data_type,
        values,
    };
    let owned = |values: &[&str]| values.iter().map(|value| (*value).to_owned()).collect();
    let scalars = NATIVE.iter().chain(OTHERS);
    let scalars = scalars.map(|(data_type, values)| sample((*data_type).to_owned(), owned(values)));
    let arrays =
        NATIVE.iter().map(|(data_type, values)| sample(format!("{data_type}[]"), arrays(values).into()));
    scalars.chain(arrays).collect()
}

/// Row n has the n-th value of every type that has so many, and the last row none.
async fn create_tables(database: &Database) {
    let samples = samples();
    let column = |sample: &Sample| format!("{} {}", quoted(&sample.column), sample.data_type);
    let shape: Vec<_> = samples.iter().map(column).collect();
    let shape = shape.join(", ");
    database
        .execute("create type mood as enum ('sad', 'glad'); create domain positive as int check (value > 0)")
        .await;
    database.execute(&format!("create table source (id int8, {shape})")).await;
    database.execute("create table target (like source)").await;
    let longest = samples.iter().map(|sample| sample.values.len()).max().unwrap_or(0);
    for row in 0..=longest {
        let value = |sample: &Sample| sample.values.get(row).map_or("null".into(), |text| literal(text));
        let values: Vec<_> = samples.iter().map(value).collect();
        database.execute(&format!("insert into source values ({row}, {})", values.join(", "))).await;
    }
}

async fn prepared() -> (Database, Client, Vec<Column>) {
    let database = Database::fresh().await;
    create_tables(&database).await;
    let client = database.client().await;
    let columns = describe(&client, "select * from source").await;
    (database, client, columns)
}

#[tokio::test]
async fn every_type_of_postgres_value_survives_staging() {
    let (_database, client, columns) = prepared().await;

    let batches = read(&client, &columns, "table source", 3).await;
    stage(&client, &batches).await;
    let cast = |sample: &Sample| format!("{}::{}", quoted(&sample.column), sample.data_type);
    let casts: Vec<_> = samples().iter().map(cast).collect();
    let insert = format!("insert into target select id, {} from staging", casts.join(", "));
    client.batch_execute(&insert).await.expect("staged values are assigned or cast back");

    assert!(batches.len() > 3);
    assert_eq!(rows_apart(&client, "source", "target").await, 0);
    assert_eq!(rows_apart(&client, "target", "source").await, 0);
}

#[tokio::test]
async fn columns_of_equal_native_kinds_are_copied_straight_into_each_other() {
    let (_database, client, columns) = prepared().await;
    let native: Vec<_> = columns.into_iter().filter(|column| column.kind().is_native()).collect();
    let (id, domain) = (1, 1);
    assert_eq!(native.len(), id + domain + 2 * NATIVE.len());
    let names: Vec<_> = native.iter().map(|column| quoted(&column.name)).collect();
    let query = format!("select {} from source", names.join(", "));
    client.batch_execute(&format!("create table same as {query} limit 0")).await.expect("a new table");

    let batches = read(&client, &native, &query, 100).await;
    let kinds = batches[0].schema().fields().iter().map(|field| Kind::of_field(field)).collect::<Vec<_>>();
    let of_target = describe(&client, "select * from same").await;
    assert_eq!(kinds, of_target.iter().map(|column| Some(column.kind())).collect::<Vec<_>>());
    write(&client, "same", &batches).await;

    client.batch_execute(&format!("create view source_view as {query}")).await.expect("a new view");
    assert_eq!(rows_apart(&client, "source_view", "same").await, 0);
}

#[tokio::test]
async fn numerics_of_the_utmost_length_survive() {
    let database = Database::fresh().await;
    let client = database.client().await;
    let longest = "(repeat('7', 131072) || '.' || repeat('3', 16383))::numeric";
    let query = format!("select 1 as id, {longest} as price, array[{longest}, -{longest}] as prices");
    client.batch_execute(&format!("create table source as {query}")).await.expect("a new table");
    let columns = describe(&client, "table source").await;

    let batches = read(&client, &columns, "table source", 100).await;
    stage(&client, &batches).await;

    assert_eq!(rows_apart(&client, "source", "staging").await, 0);
}

#[tokio::test]
async fn batches_are_cut_from_a_long_stream() {
    let database = Database::fresh().await;
    let client = database.client().await;
    let query = "select i as id, i / 7.0 as price from generate_series(1, 998) i";
    let columns = describe(&client, query).await;
    let batches = read(&client, &columns, query, 100).await;
    let sizes: Vec<_> = batches.iter().map(RecordBatch::num_rows).collect();
    assert_eq!(sizes, [100, 100, 100, 100, 100, 100, 100, 100, 100, 98]);
}

#[tokio::test]
async fn values_that_arrow_cannot_hold_are_flaws_of_their_rows_alone() {
    let database = Database::fresh().await;
    let client = database.client().await;
    let query = "select * from (values
        (1, '{1}'::int[], interval '1 day', timestamp '2000-01-01'),
        (2, '{{1,2}}', '1 day', '2000-01-01'), (3, '[0:1]={1,2}', '1 day', '2000-01-01'),
        (4, '{1}', '2562048 hours', '2000-01-01'), (5, '{1}', '1 day', '294276-12-31'),
        (6, '{1}', '1 day', '2000-01-01')) v(id, counts, length, local)";
    let columns = describe(&client, query).await;

    let Decoded { rows, flawed } = &decoded(&client, &columns, query, 100).await[0];

    assert_eq!(rows.num_rows(), 6);
    let flawed: Vec<_> = flawed.iter().map(|flawed| (flawed.row, &*flawed.column, flawed.flaw)).collect();
    let expected = [
        (1, "counts", Flaw::Dimensions),
        (2, "counts", Flaw::Dimensions),
        (3, "length", Flaw::OutOfRange),
        (4, "local", Flaw::OutOfRange),
    ];
    assert_eq!(flawed, expected);
}

/// The oids and names of the codec are those of the server.
#[tokio::test]
async fn postgres_describes_the_built_in_types_as_their_kinds() {
    let database = Database::fresh().await;
    let client = database.client().await;
    for (scalar, array_oid) in SCALARS {
        let array = Kind::Array(scalar);
        let sql = "select oid, typarray, $1::text::regtype::oid from pg_type where oid = $2";
        let row = client.query_one(sql, &[&array.postgres_type(), &scalar.oid()]).await.expect("a type");
        let found: (u32, u32, u32) = (row.get(0), row.get(1), row.get(2));
        assert_eq!(found, (scalar.oid(), array_oid, array_oid), "{scalar:?}");
        assert_eq!(Kind::of_oid(array_oid), array);
    }
    assert_eq!(Kind::of_oid(1043), Kind::Scalar(Scalar::Text));
}
