//! Rows that are functions of their key, and rows that are not.

use rstest::rstest;
use vitrina_guard::{check, check_keyed};

fn findings(sql: &str) -> Vec<String> {
    let schemas = ["content".to_owned()];
    assert_eq!(check(sql, &schemas), [], "{sql}");
    let found = check_keyed(sql, &["id".to_owned()]);
    assert!(found.iter().all(|finding| finding.code == "sql.not_of_a_key"));
    found.into_iter().map(|finding| finding.message).collect()
}

#[rstest]
#[case("select id, title from content.film where rating > 5 order by title")]
#[case::an_aggregate(
    "select f.id, count(*) from content.film f join content.genre g on g.film_id = f.id group by f.id"
)]
#[case::plain_distinct("select distinct id, title from content.film")]
#[case::a_limit_for_each_row(
    "select id, (select name from content.genre g where g.film_id = f.id order by name limit 1) as genre from content.film f"
)]
#[case::a_lateral_limit(
    "select f.id, g.name from content.film f, lateral (select name from content.genre g where g.film_id = f.id limit 3) g"
)]
#[case::a_window_of_its_key(
    "select id, row_number() over (partition by id order by title) as n from content.film"
)]
#[case::a_window_of_its_key_by_another_name(
    "select f.film_id as id, rank() over (partition by f.film_id) as n from content.film f"
)]
#[case::a_named_window("select id, rank() over w as n from content.film window w as (partition by id)")]
fn a_function_of_its_key_passes(#[case] sql: &str) {
    assert_eq!(findings(sql), Vec::<String>::new());
}

#[rstest]
#[case::limit("select id from content.film order by rating limit 10", "LIMIT")]
#[case::offset("select id from content.film offset 3", "LIMIT")]
#[case::in_a_sub_query("select s.id from (select id from content.film fetch first 3 rows only) s", "LIMIT")]
#[case::in_a_cte("with best as (select id from content.film limit 3) select id from best", "LIMIT")]
#[case::in_a_union(
    "(select id from content.film limit 1) union all select film_id from content.genre",
    "LIMIT"
)]
#[case::distinct_on("select distinct on (title) id, title from content.film", "DISTINCT ON")]
#[case::a_rank_over_all("select id, rank() over (order by rating) as place from content.film", "window")]
#[case::a_rank_within_others(
    "select id, rank() over (partition by year order by rating) as place from content.film",
    "window"
)]
#[case::a_named_window(
    "select id, rank() over w as n from content.film window w as (partition by year)",
    "window"
)]
#[case::now("select id, now() - created as age from content.film", "moment")]
#[case::today("select id from content.film where released < current_date", "moment")]
fn what_depends_on_more_is_found(#[case] sql: &str, #[case] what: &str) {
    let found = findings(sql);
    assert!(found.len() == 1 && found[0].contains(what), "{found:?}");
}
