//! Random values of every type, both ways through a live server.

use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};
use tokio::runtime::Runtime;
use tokio_postgres::Client;
use tokio_postgres::types::ToSql;
use vitrina_testbed::Database;

use crate::samples::{batches, columns, json, numerics};
use crate::server::{describe, read, rows_apart, stage, write};

/// A case is a batch of many values, and a trip to the server.
const CASES: u32 = 48;

/// Every type with a strategy for the text of its values.
fn types() -> Vec<(&'static str, BoxedStrategy<String>)> {
    vec![
        ("boolean", any::<bool>().prop_map(|value| value.to_string()).boxed()),
        ("smallint", any::<i16>().prop_map(|value| value.to_string()).boxed()),
        ("integer", any::<i32>().prop_map(|value| value.to_string()).boxed()),
        ("bigint", any::<i64>().prop_map(|value| value.to_string()).boxed()),
        ("real", any::<u32>().prop_map(|bits| f32::from_bits(bits).to_string()).boxed()),
        ("double precision", any::<u64>().prop_map(|bits| f64::from_bits(bits).to_string()).boxed()),
        ("numeric", numerics().boxed()),
        ("numeric(20,6)", "-?[0-9]{1,14}(\\.[0-9]{1,9})?".boxed()),
        ("text", "[^\0]{0,12}".boxed()),
        ("varchar(12)", "[^\0]{0,12}".boxed()),
        ("char(12)", "[^\0]{0,12}".boxed()),
        ("name", "[^\0]{0,12}".boxed()),
        ("bytea", "\\\\x([0-9a-f]{2}){0,24}".boxed()),
        ("date", dates().boxed()),
        ("time", times().boxed()),
        ("timestamp", timestamps("").boxed()),
        ("timestamptz", timestamps("+05:30").boxed()),
        ("interval", intervals().boxed()),
        ("uuid", "[0-9a-f]{32}".boxed()),
        ("json", json().boxed()),
        ("jsonb", json().boxed()),
    ]
}

fn dates() -> impl Strategy<Value = String> {
    prop_oneof![9 => days().prop_map(|(day, era)| format!("{day}{era}")), 1 => infinity()]
}

fn days() -> impl Strategy<Value = (String, &'static str)> {
    let era = prop_oneof![Just(""), Just(" BC")];
    let day = "[0-3][0-9]{2}[1-9]-(0[1-9]|1[0-2])-(0[1-9]|1[0-9]|2[0-8])";
    (day, era)
}

fn infinity() -> impl Strategy<Value = String> {
    prop_oneof![Just("infinity".to_owned()), Just("-infinity".to_owned())]
}

fn times() -> impl Strategy<Value = String> {
    let time = "([01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9]\\.[0-9]{6}";
    prop_oneof![9 => time, 1 => Just("24:00:00".to_owned())]
}

fn timestamps(zone: &'static str) -> impl Strategy<Value = String> {
    let moment = (days(), times()).prop_map(move |((day, era), time)| format!("{day} {time}{zone}{era}"));
    prop_oneof![9 => moment, 1 => infinity()]
}

fn intervals() -> impl Strategy<Value = String> {
    let seconds = -9_000_000_000_i64..9_000_000_000;
    (any::<i32>(), any::<i32>(), seconds, 0..1_000_000_u32).prop_map(|(months, days, seconds, fraction)| {
        format!("{months} mons {days} days {seconds}.{fraction:06} seconds")
    })
}

/// The text of an array.
fn array(items: Vec<Option<String>>) -> String {
    let item = |item: Option<String>| match item {
        None => "NULL".to_owned(),
        Some(text) => format!("\"{}\"", text.replace('\\', "\\\\").replace('"', "\\\"")),
    };
    format!("{{{}}}", items.into_iter().map(item).collect::<Vec<_>>().join(","))
}

type Texts = Vec<Option<String>>;

/// The texts of every column: one of each type, then one of each array.
fn texts() -> impl Strategy<Value = Vec<Texts>> {
    (1..8_usize).prop_flat_map(|rows| {
        let scalars = types().into_iter().map(move |(_, values)| column(values, rows));
        let arrays = types().into_iter().map(move |(_, values)| {
            column(vec(option::weighted(0.8, values), 0..4).prop_map(array).boxed(), rows)
        });
        scalars.chain(arrays).collect::<Vec<_>>()
    })
}

fn column(values: BoxedStrategy<String>, rows: usize) -> BoxedStrategy<Texts> {
    vec(option::weighted(0.8, values), rows).boxed()
}

fn type_names() -> Vec<String> {
    let names: Vec<_> = types().into_iter().map(|(name, _)| name.to_owned()).collect();
    names.iter().cloned().chain(names.iter().map(|name| format!("{name}[]"))).collect()
}

async fn create_tables(client: &Client) {
    let shape: Vec<_> =
        type_names().iter().enumerate().map(|(index, name)| format!("c{index} {name}")).collect();
    let shape = shape.join(", ");
    let create = format!(
        "create temporary table source (id int8, {shape}); create temporary table target (like source)"
    );
    client.batch_execute(&create).await.expect("the types exist");
}

async fn fill_source(client: &Client, texts: &[Texts]) {
    let names = type_names();
    let casts: Vec<_> = names.iter().enumerate().map(|(index, name)| format!("c{index}::{name}")).collect();
    let inputs: Vec<_> = (1..=names.len()).map(|index| format!("${index}::text[]")).collect();
    let aliases: Vec<_> = (0..names.len()).map(|index| format!("c{index}")).collect();
    let insert = format!(
        "insert into source select id, {} from unnest({}) with ordinality as v({}, id)",
        casts.join(", "),
        inputs.join(", "),
        aliases.join(", ")
    );
    client.batch_execute("truncate source, target").await.expect("both tables are there");
    let parameters: Vec<_> = texts.iter().map(|texts| texts as &(dyn ToSql + Sync)).collect();
    client.execute(&insert, &parameters).await.expect("the texts are values of their types");
}

fn for_random<S: Strategy>(strategy: &S, mut check: impl AsyncFnMut(&Client, S::Value)) {
    let runtime = Runtime::new().expect("a runtime");
    let database = runtime.block_on(Database::fresh());
    let client = runtime.block_on(database.client());
    let check = std::cell::RefCell::new(&mut check);
    let config = Config { cases: CASES, failure_persistence: None, ..Config::default() };
    let run = |value| {
        runtime.block_on((check.borrow_mut())(&client, value));
        Ok(())
    };
    TestRunner::new(config).run(strategy, run).unwrap_or_else(|error| panic!("{error}"));
    runtime.block_on(async { drop(database) });
}

#[test]
fn values_written_as_text_arrive_unchanged_in_a_table_of_the_same_types() {
    let mut created = false;
    for_random(&texts(), async |client, texts| {
        if !std::mem::replace(&mut created, true) {
            create_tables(client).await;
        }
        fill_source(client, &texts).await;
        let columns = describe(client, "select * from source").await;
        let batches = read(client, &columns, "table source", 3).await;
        write(client, "target", &batches).await;
        assert_eq!(rows_apart(client, "source", "target").await, 0);
        assert_eq!(rows_apart(client, "target", "source").await, 0);
    });
}

#[test]
fn values_of_arrow_come_back_from_the_server_unchanged() {
    for_random(&batches(), async |client, batch| {
        stage(client, std::slice::from_ref(&batch)).await;
        let columns = columns();
        let again = read(client, &columns, "table staging", usize::MAX).await;
        assert_eq!(again, [batch]);
    });
}
