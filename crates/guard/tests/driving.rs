//! The table that the rows of a query stand for, found at a real source.
#![allow(clippy::unwrap_used)] // the verbs of a test may panic as the test itself may

use rstest::rstest;
use vitrina_guard::{ChangeTable, describe, driving_table, named_table, proposed_key};
use vitrina_testbed::Database;

const TABLES: &str = "
    create schema content;
    create table content.film (id int primary key, title text, modified timestamptz not null, seen timestamptz);
    create index on content.film (modified, id);
    create table content.genre (film_id int, name text, modified timestamptz not null);
    create view content.seen as select id, modified from content.film";

async fn driving(sql: &str, wanted: &[&str]) -> Result<ChangeTable, String> {
    let database = Database::fresh().await;
    database.execute(TABLES).await;
    let client = database.client().await;
    let described = describe(&client, sql).await.unwrap();
    driving_table(&client, sql, &described, wanted, 2).await.unwrap()
}

#[rstest]
#[case::plain("select id, title, modified from content.film")]
#[case::all_columns("select * from content.film")]
#[case::a_join(
    "select f.id, f.modified, g.name from content.film f join content.genre g on g.film_id = f.id"
)]
#[case::a_sub_query("select s.id, s.modified from (select * from content.film where title <> '') s")]
#[case::a_cte("with f as (select id, modified from content.film) select id, modified from f")]
#[case::an_aggregate(
    "select f.id, f.modified, count(*) from content.film f left join content.genre g on g.film_id = f.id group by f.id"
)]
#[tokio::test(flavor = "multi_thread")]
async fn plain_columns_of_one_table_lead_to_it(#[case] sql: &str) {
    let table = driving(sql, &["modified", "id", "id"]).await.unwrap();
    assert_eq!((table.name.as_str(), table.indexed, table.has_versions), ("content.film", true, true));
    let columns: Vec<_> =
        table.columns.iter().map(|column| (column.name.as_str(), column.not_null, column.unique)).collect();
    assert_eq!(columns, [("modified", true, false), ("id", true, true), ("id", true, true)]);
}

#[rstest]
#[case::an_expression(
    "select id, greatest(modified, seen) as modified from content.film",
    "not a plain column"
)]
#[case::two_tables(
    "select f.id, g.modified from content.film f join content.genre g on g.film_id = f.id",
    "several tables"
)]
#[case::twice(
    "select a.id, b.modified from content.film a join content.film b on b.id = a.id + 1",
    "more than once"
)]
#[case::twice_in_a_sub_query(
    "select id, modified from content.film where id in (select max(id) from content.film)",
    "more than once"
)]
#[case::a_view("select id, modified from content.seen", "no table")]
#[case::a_union(
    "select id, modified from content.film union all select film_id, modified from content.genre",
    "not a plain column"
)]
#[tokio::test(flavor = "multi_thread")]
async fn what_could_come_from_elsewhere_leads_to_none(#[case] sql: &str, #[case] why: &str) {
    let reason = driving(sql, &["modified", "id"]).await.unwrap_err();
    assert!(reason.contains(why), "{reason}");
}

#[rstest]
#[case::a_table("select id, modified from content.film", true)]
#[case::a_condition("select id, modified from content.film where id > 0", false)]
#[case::partitions("select id, modified from content.part", true)]
#[case::heirs("select id, modified from content.parent", false)]
#[case::a_heir("select id, modified from content.heir", true)]
#[case::names_in_quotes("select \"Id\" as id, modified from content.\"Odd one\"", true)]
#[case::a_function_of_the_row("select id, modified, film.words from content.film", false)]
#[tokio::test(flavor = "multi_thread")]
async fn a_query_without_conditions_projects_its_table(#[case] sql: &str, #[case] projected: bool) {
    let database = Database::fresh().await;
    database.execute(TABLES).await;
    database
        .execute(
            "create table content.part (id int primary key, modified timestamptz not null) partition by hash (id);
             create table content.parent (id int primary key, modified timestamptz not null);
             create table content.heir () inherits (content.parent);
             create table content.\"Odd one\" (\"Id\" int primary key, modified timestamptz not null);
             create function pg_catalog.words(content.film) returns setof text language sql as
                 $$ select unnest(string_to_array($1.title, ' ')) $$",
        )
        .await;
    let client = database.client().await;
    let described = describe(&client, sql).await.unwrap();
    let table = driving_table(&client, sql, &described, &["modified", "id"], 2).await.unwrap().unwrap();
    assert_eq!(table.projected, projected);
}

#[rstest]
#[case::backwards("(modified desc, id desc)", true)]
#[case::further_columns("(modified, id, title)", true)]
#[case::another_order("(modified desc, id)", false)]
#[case::nulls_elsewhere("(modified desc nulls last, id desc nulls last)", false)]
#[case::not_of_its_key("(modified) include (id)", false)]
#[case::a_part("(modified, id) where id > 5", false)]
#[tokio::test(flavor = "multi_thread")]
async fn an_index_serves_the_order_in_which_it_is_read(#[case] columns: &str, #[case] indexed: bool) {
    let database = Database::fresh().await;
    let tables = TABLES.replace("content.film (modified, id);", &format!("content.film {columns};"));
    database.execute(&tables).await;
    let (client, sql) = (database.client().await, "select id, modified from content.film");
    let described = describe(&client, sql).await.unwrap();
    let table = driving_table(&client, sql, &described, &["modified", "id"], 2).await.unwrap().unwrap();
    assert_eq!(table.indexed, indexed);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_named_table_is_taken_by_the_columns_that_the_query_returns_or_by_their_names() {
    let database = Database::fresh().await;
    database.execute(TABLES).await;
    let client = database.client().await;
    let sql = "select f.id as film_id, count(*) from content.film f join content.genre g on g.film_id = f.id group by f.id";
    let described = describe(&client, sql).await.unwrap();
    let named = async |table: &str, wanted: &[&str]| {
        named_table(&client, sql, table, &described, wanted, 1).await.unwrap()
    };
    let columns =
        |table: ChangeTable| table.columns.into_iter().map(|column| column.name).collect::<Vec<_>>();
    assert_eq!(columns(named("content.film", &["modified", "film_id"]).await.unwrap()), ["modified", "id"]);
    assert_eq!(
        columns(named("content.genre", &["modified", "film_id"]).await.unwrap()),
        ["modified", "film_id"]
    );
    assert!(
        named("content.film", &["changed", "film_id"]).await.unwrap_err().contains("no column for changed")
    );
    assert!(named("content.nothing", &["modified"]).await.is_err());
}

#[rstest]
#[case::as_it_is("select id as k from content.film", Some("id"))]
#[case::of_a_view("select id as k from content.seen_twice", Some("id"))]
#[case::as_text("select id::text as k from content.film", Some("id"))]
#[case::as_a_longer_number(
    "select f.id::bigint::text as k from content.film f join content.genre g on true",
    Some("id")
)]
#[case::equal_by_a_join(
    "select g.film_id as k from content.genre g join content.film f on g.film_id = f.id left join content.note n on n.film_id = f.id",
    Some("id")
)]
#[case::equal_where_it_is_joined_at_all(
    "select g.film_id as k from content.genre g left join content.film f on g.film_id = f.id",
    None
)]
#[case::equal_where_it_is_joined_from_the_other_side(
    "select g.film_id as k from content.film f right join content.genre g on g.film_id = f.id",
    None
)]
#[case::equal_by_a_full_join(
    "select film_id as k from content.note n full join (select id as film_id from content.film) f using (film_id)",
    None
)]
#[case::equal_within_what_is_joined_at_all(
    "select g.film_id as k from content.genre g left join (content.note n join content.film f on f.id = n.film_id) on n.film_id = g.film_id",
    None
)]
#[case::equal_by_where_behind_an_outer_join(
    "select g.film_id as k from content.genre g left join content.film f on true where f.id = g.film_id and g.name <> ''",
    Some("id")
)]
#[case::equal_by_using("select film_id as k from content.genre g join content.note n using (film_id)", None)]
#[case::equal_in_a_value(
    "select g.film_id as k, (select max(title) from content.film where id = g.film_id) from content.genre g",
    None
)]
#[case::equal_as_a_value(
    "select g.film_id as k, g.film_id = f.id as same from content.genre g, content.film f",
    None
)]
#[case::equal_is_not_true(
    "select g.film_id as k from content.genre g, content.film f where (g.film_id = f.id) is not true",
    None
)]
#[case::equal_under_an_alias_of_another_place(
    "select g.film_id as k, (select count(*) from content.note f where f.film_id = g.film_id) from content.genre g, content.film f where exists (select from content.note f where f.film_id = g.film_id)",
    None
)]
#[case::equal_by_a_folding_collation(
    "select l.code as k from content.loose l join content.film f on f.code = l.code",
    None
)]
#[case::equal_by_a_number_that_is_a_text(
    "select l.score::text as k from content.loose l join content.film f on f.score = l.score",
    None
)]
#[case::equal_by_a_number(
    "select l.score as k from content.loose l join content.film f on f.score = l.score",
    None
)]
#[case::equal_under_a_cast(
    "select l.score as k from content.loose l join content.film f on f.id = l.score::int",
    None
)]
#[case::equal_under_a_cast_of_a_text(
    "select l.plain as k from content.loose l join content.film f on f.id = l.plain::int",
    None
)]
#[case::equal_as_another_type(
    "select l.at::text as k from content.loose l join content.film f on f.modified = l.at",
    None
)]
#[case::of_a_join_under_a_name(
    "select f.film_id::text as k from (content.film e join content.genre f on f.film_id = e.id) j join content.note f on f.film_id = j.id",
    None
)]
#[case::used_in_a_join_under_a_name(
    "select r.id as k from (content.film e join content.seen r using (id)) j (fid) join content.loose r on r.id = j.fid",
    None
)]
#[case::under_other_names("select i::text as k from content.film f (i, t)", None)]
#[case::through_a_sub_query(
    "select g.film_id as k from content.genre g join (select id as i from content.film) f on f.i = g.film_id",
    Some("id")
)]
#[case::through_a_cte(
    "with f as (select x.id, x.title from content.film x) select g.film_id as k from content.genre g, f where g.film_id = f.id",
    Some("id")
)]
#[case::through_a_cte_of_another_name(
    "with f as (select x.id, x.title from content.film x) select g.film_id as k from content.genre g, f as o where g.film_id = o.id",
    Some("id")
)]
#[case::computed("select id + 1000 as id, id + 1000 as k from content.film", None)]
#[case::another_case("select lower(title) as title, lower(title) as k from content.film", None)]
#[case::one_of_two("select coalesce(seen, modified) as k from content.film", None)]
#[case::a_rounded_number("select score::int as k from content.film", None)]
#[case::a_shorter_text("select title::varchar(3) as k from content.film", None)]
#[case::of_another_table("select g.film_id as k from content.genre g, content.film f", None)]
#[case::equal_by_chance(
    "select g.film_id as k from content.genre g, content.film f where g.film_id = f.id or g.name = ''",
    None
)]
#[case::not_equal(
    "select g.film_id as k from content.genre g, content.film f where not (g.film_id = f.id)",
    None
)]
#[case::a_union("select id as k from content.film union all select id from content.film", None)]
#[case::of_a_view_that_computes("select id as k from content.computed", None)]
#[tokio::test(flavor = "multi_thread")]
async fn a_key_is_a_column_of_the_named_table_or_leads_nowhere(
    #[case] sql: &str,
    #[case] column: Option<&str>,
) {
    let database = Database::fresh().await;
    database.execute(TABLES).await;
    let more =
        "create collation content.folding (provider = icu, locale = 'und-u-ks-level2', deterministic = false);
                alter table content.film add k int, add score numeric, add code text collate content.folding; create table content.note (film_id int);
                create table content.loose (id int, code text collate content.folding, score numeric, plain text, at date);
                create view content.seen_twice as select s.id, s.modified as at from content.seen s;
                create view content.computed as select id + 1 as id from content.film";
    database.execute(more).await;
    let client = database.client().await;
    let described = describe(&client, sql).await.unwrap();
    let found = named_table(&client, sql, "content.film", &described, &["modified", "k"], 1).await.unwrap();
    let names: Option<Vec<String>> =
        found.ok().map(|table| table.columns.into_iter().map(|column| column.name).collect());
    assert_eq!(names, column.map(|column| vec!["modified".to_owned(), column.to_owned()]));
}

#[rstest]
#[case::a_primary_key("select title, id as film from content.film where title <> '' order by 1 limit 5", &["film"])]
#[case::all_columns("select * from content.film", &["id"])]
#[case::a_sub_query_of_a_row("select id, (select array_agg(x) from unnest(array[1, 2]) x) as xs from content.film", &["id"])]
#[case::groups("select g.film_id, count(*) from content.genre g group by film_id", &["film_id"])]
#[case::groups_by_place("select upper(name), film_id, count(*) from content.genre group by 1, 2", &["upper", "film_id"])]
#[case::groups_of_a_join("select f.id, count(*) from content.film f join content.genre g on g.film_id = f.id group by f.id", &["id"])]
#[case::a_key_left_out("select title from content.film", &[])]
#[case::a_key_that_is_computed("select id + 0 as id from content.film", &[])]
#[case::a_join("select f.id, g.name from content.film f join content.genre g on g.film_id = f.id", &[])]
#[case::a_product("select f.id from content.film f, content.film g", &[])]
#[case::a_set("select id, unnest(array[1, 2]) as n from content.film", &[])]
#[case::a_set_of_groups("select film_id, unnest(array[1, 2]) as n from content.genre group by film_id", &[])]
#[case::a_union("select id from content.film union all select id from content.film", &[])]
#[case::a_cte("with f as (select a.id from content.film a, content.film b) select id from f", &[])]
#[case::a_sub_query("select s.id from (select a.id from content.film a, content.film b) s", &[])]
#[case::a_view("select id, modified from content.seen", &[])]
#[case::a_group_left_out("select count(*) from content.genre group by film_id, name", &[])]
#[case::a_group_by_a_name_of_the_table(
    "select lower(title) as id, count(*) from content.film group by id",
    &[]
)]
#[case::grouping_sets(
    "select film_id, name, count(*) from content.genre group by rollup (film_id, name)",
    &[]
)]
#[case::no_key("select film_id, name from content.genre", &[])]
#[tokio::test(flavor = "multi_thread")]
async fn a_key_is_proposed_only_where_it_is_proved(#[case] sql: &str, #[case] key: &[&str]) {
    let database = Database::fresh().await;
    database.execute(TABLES).await;
    let client = database.client().await;
    let described = describe(&client, sql).await.unwrap();
    let proposed = proposed_key(&client, sql, &described).await.unwrap();
    assert_eq!(proposed.unwrap_or_default(), key, "none is empty");
}

/// Each WITH query names the one before twice: there are more ways to a column than anybody could follow.
#[tokio::test(flavor = "multi_thread")]
async fn the_way_to_a_key_is_found_or_given_up_at_once() {
    let database = Database::fresh().await;
    database.execute(TABLES).await;
    let client = database.client().await;
    let more = (1..60).fold("with q0 as (select id from content.film)".to_owned(), |with, n| {
        format!("{with}, q{n} as (select a.id from q{0} a join q{0} b on a.id = b.id)", n - 1)
    });
    let sql = format!("{more} select id::text as k from q59");
    let described = describe(&client, "select id::text as k from content.film").await.unwrap();
    let before = std::time::Instant::now();
    let found = named_table(&client, &sql, "content.film", &described, &["modified", "k"], 1).await.unwrap();
    assert!(before.elapsed().as_secs() < 10, "{:?}", before.elapsed());
    found.unwrap_err();
}
