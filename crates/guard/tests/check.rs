//! Attacks that must be refused, each with its code, and queries of real marts that must not be.

use std::time::{Duration, Instant};

use rstest::rstest;
use vitrina_guard::{MAX_BYTES, check, check_table, check_watch};

fn schemas() -> Vec<String> {
    vec!["content".to_owned(), "ugc".to_owned()]
}

fn codes(sql: &str) -> Vec<&'static str> {
    check(sql, &schemas()).iter().map(|finding| finding.code).collect()
}

#[test]
fn every_attack_is_refused_with_its_code() {
    let attacks = [
        ("sql.empty", ""),
        ("sql.empty", " -- nothing\n;"),
        ("sql.syntax", "select from where"),
        ("sql.syntax", "select 1) q; drop table content.film_work; select * from (select 1"),
        ("sql.syntax", "select 'unterminated"),
        ("sql.syntax", "select 1 \0 from content.film_work"),
        ("sql.several_statements", "select 1; select 2"),
        ("sql.not_select", "delete from content.film_work"),
        ("sql.not_select", "insert into content.film_work values (1)"),
        ("sql.not_select", "update content.film_work set id = 1"),
        ("sql.not_select", "truncate content.film_work"),
        ("sql.not_select", "drop table content.film_work"),
        ("sql.not_select", "copy content.film_work to program 'id'"),
        ("sql.not_select", "do $$ begin end $$"),
        ("sql.not_select", "call content.rebuild()"),
        ("sql.not_select", "set role postgres"),
        ("sql.not_select", "explain analyze delete from content.film_work"),
        ("sql.not_select", "create table content.x as select 1"),
        ("sql.not_select", "prepare p as select 1"),
        ("sql.not_select", "with d as (select 1) delete from content.film_work"),
        ("sql.data_modifying", "with d as (delete from content.film_work returning *) select * from d"),
        ("sql.data_modifying", "with d as (insert into ugc.likes values (1) returning *) select * from d"),
        ("sql.data_modifying", "with d as (update ugc.likes set value = 1 returning *) select * from d"),
        ("sql.data_modifying", "select * from (with d as (delete from ugc.likes returning 1) table d) x"),
        (
            "sql.data_modifying",
            "with d as (merge into ugc.likes l using ugc.likes r on true when matched then delete) select 1",
        ),
        ("sql.into", "select * into content.copy from content.film_work"),
        ("sql.into", "select 1 into temp t union select 2"),
        ("sql.locking", "select * from content.film_work for update"),
        ("sql.locking", "select * from (select * from content.film_work for key share) x"),
        ("sql.schema_not_allowed", "select * from auth.users"),
        ("sql.schema_not_allowed", "select * from etl.etl_pipelines"),
        ("sql.schema_not_allowed", "select * from pg_catalog.pg_authid"),
        ("sql.schema_not_allowed", "select * from information_schema.tables"),
        ("sql.schema_not_allowed", "select * from \"Content\".film_work"),
        ("sql.schema_not_allowed", "select * from other.content.film_work"),
        ("sql.schema_not_allowed", "select * from U&\"\\0061uth\".users"),
        ("sql.schema_not_allowed", "with users as (select 1) select * from auth.users"),
        ("sql.schema_not_allowed", "select (select max(email) from auth.users)"),
        ("sql.schema_not_allowed", "select 1 from content.film_work where exists (table auth.users)"),
        ("sql.schema_not_allowed", "select 1 order by (select count(*) from auth.users)"),
        ("sql.schema_not_allowed", "select 1 limit (select count(*) from auth.users)"),
        (
            "sql.schema_not_allowed",
            "select count(*) filter (where 1 in (table auth.ids)) from content.film_work",
        ),
        ("sql.schema_not_allowed", "select sum(1) over (order by (select 1 from auth.users)) from ugc.likes"),
        ("sql.schema_not_allowed", "select * from ugc.likes l join auth.users u on u.id = l.user_id"),
        ("sql.schema_not_allowed", "select 1 union all (select 2 from auth.users)"),
        ("sql.schema_not_allowed", "values ((select 1 from auth.users))"),
        ("sql.table_unqualified", "select * from pg_authid"),
        ("sql.table_unqualified", "select * from film_work"),
        ("sql.table_unqualified", "with x as (select * from x) select * from x"),
        ("sql.table_unqualified", "with a as (table b), b as (select 1) select * from a"),
        ("sql.table_unqualified", "select * from (with x as (select 1) table x) y, x"),
        ("sql.table_unqualified", "with a as (with b as (select 1) table b) select * from a, b"),
        ("sql.table_unqualified", "(with b as (select 1) table b) union all table b"),
        ("sql.function_not_allowed", "select pg_sleep(10)"),
        ("sql.function_not_allowed", "select pg_catalog.pg_sleep(10)"),
        ("sql.function_not_allowed", "select PG_SLEEP(10)"),
        ("sql.function_not_allowed", "select \"pg_sleep\"(10)"),
        ("sql.function_not_allowed", "select * from pg_read_file('/etc/passwd')"),
        ("sql.function_not_allowed", "select * from rows from (pg_ls_dir('/'), generate_series(1, 2))"),
        ("sql.function_not_allowed", "select lo_import('/etc/passwd')"),
        ("sql.function_not_allowed", "select lo_get(1)"),
        ("sql.function_not_allowed", "select * from dblink('host=x', 'select 1') as t(a int)"),
        ("sql.function_not_allowed", "select set_config('role', 'postgres', false)"),
        ("sql.function_not_allowed", "select current_setting('data_directory')"),
        ("sql.function_not_allowed", "select nextval('content.visits')"),
        ("sql.function_not_allowed", "select pg_terminate_backend(1)"),
        ("sql.function_not_allowed", "select pg_advisory_lock(1)"),
        ("sql.function_not_allowed", "select pg_notify('a', 'b')"),
        ("sql.function_not_allowed", "select query_to_xml('delete from content.film_work', true, true, '')"),
        ("sql.function_not_allowed", "select ts_rewrite('a'::tsquery, 'select * from auth.users')"),
        ("sql.function_not_allowed", "select * from ts_stat('select tsv from auth.users')"),
        ("sql.function_not_allowed", "select content.rebuild()"),
        ("sql.function_not_allowed", "select random()"),
        ("sql.function_not_allowed", "select current_user"),
        ("sql.function_not_allowed", "select 1 from content.film_work limit pg_sleep(1)::text::int"),
        ("sql.function_not_allowed", "select ('/etc/passwd'::text).pg_read_file"),
        ("sql.function_not_allowed", "select a.pg_read_file from unnest(array['/etc/passwd']) a"),
        ("sql.function_not_allowed", "select (select 'content.visits'::text).nextval"),
        ("sql.operator_not_allowed", "select 1 operator(public.+) 1"),
        ("sql.operator_not_allowed", "select 1 operator(public.=) any (select 2)"),
        ("sql.operator_not_allowed", "select id from ugc.likes order by id using operator(public.<)"),
        ("sql.type_not_allowed", "select 1::public.trap"),
        ("sql.type_not_allowed", "select cast('x' as auth.secret[])"),
        ("sql.type_not_allowed", "select 'auth.users'::regclass"),
        ("sql.type_not_allowed", "select '{auth.users}'::_regclass"),
        ("sql.type_not_allowed", "select 'a' collate public.trap"),
        ("sql.type_not_allowed", "select * from json_to_record('{}') as t(a public.trap)"),
        ("sql.parameter", "select * from content.film_work where id = $1"),
        ("sql.construct_not_allowed", "select xmlparse(document '<a/>')"),
        ("sql.construct_not_allowed", "select * from content.film_work tablesample system (1)"),
        ("sql.construct_not_allowed", "select * from xmltable('/a' passing '<a/>' columns b text)"),
    ];
    let passed: Vec<_> = attacks
        .iter()
        .map(|(code, sql)| (*code, *sql, codes(sql)))
        .filter(|(code, _, found)| !found.contains(code))
        .collect();
    assert!(passed.is_empty(), "{passed:#?}");
}

#[test]
fn a_query_of_a_mart_is_clean() {
    let queries = [
        "select 1",
        "select * from content.film_work",
        "table content.film_work",
        "select id, title from content.film_work;",
        "select id, title from content.film_work; -- the films;",
        "/* films */ select id from content.film_work -- no order by",
        "select 'a :b', ':c', '$1', 'drop table x; --' from content.film_work limit 10",
        "select * from (select * from content.film_work order by id limit 5 offset 2) f",
        "select * from \"content\".\"film_work\" as f where f.\"type\" = 'movie'",
        "values (1, 'a'), (2, 'b')",
        "select 1 union all select 2 except (select 3 intersect select 4) order by 1",
        "with f as (select * from content.film_work) select * from f",
        "with a as (select 1 as x), b as (select x + 1 as x from a) select * from a join b using (x)",
        "with recursive n as (select 1 as i union all select i + 1 from n where i < 5) select i from n",
        "with recursive a as (select * from b), b as (select 1) select * from a",
        "with f as materialized (table content.film_work) select * from (select count(*) from f) c, lateral (table f) l",
        "with f as (select 1) (select * from f union all select * from f) order by 1",
        "with content as (select 1 as film_work) select film_work from content",
        "select distinct on (f.id) f.id, p.full_name from content.film_work f \
         left join content.person_film_work pf on pf.film_work_id = f.id \
         left join content.person p on p.id = pf.person_id order by f.id, pf.created desc nulls last",
        "select f.id, f.title, coalesce(round(avg(r.score)::numeric, 2), 0)::numeric(4, 2) as rating, \
         count(*) filter (where r.score >= 8) as likes, array_agg(distinct g.name order by g.name) as genres, \
         jsonb_agg(jsonb_build_object('id', g.id, 'name', g.name)) as genre_docs \
         from content.film_work f left join ugc.ratings r on r.film_id = f.id \
         left join content.genre g on g.id = any(f.genre_ids) \
         group by f.id, f.title having count(*) > 0",
        "select date_trunc('day', created_at at time zone 'UTC')::date as day, \
         extract(epoch from max(created_at)), now() - interval '7 days', current_date from ugc.views group by 1",
        "select id, row_number() over w, lag(score, 1) over (partition by film_id order by created_at), \
         sum(score) over (order by created_at rows between 2 preceding and current row) \
         from ugc.ratings window w as (partition by film_id order by created_at)",
        "select grouping(type), type, count(*) from content.film_work group by grouping sets ((type), ()), rollup (type)",
        "select percentile_cont(0.5) within group (order by score) from ugc.ratings",
        "select case when title ilike '%war%' escape '!' then 'war' when title similar to 'a+' then 'a' else null end \
         from content.film_work where title is not null and rating between 1 and 5 and type in ('a', 'b') \
         and (id, type) not in (select id, type from content.old) and deleted is not true",
        "select d::date, nullif(trim(both from upper(substring('abc' from 2 for 1))), ''), greatest(1, 2), \
         position('a' in 'ba'), overlay('abc' placing 'x' from 1) \
         from generate_series('2026-01-01'::timestamptz, now(), '1 day') with ordinality as t(d, n)",
        "select data ->> 'a', data #> '{b}', data @> '{\"c\": 1}', (array[1, 2, 3])[1:2], tags[1], row(1, 2), b'101' \
         from ugc.events, jsonb_array_elements(data -> 'items') item, jsonb_to_record(item) as x(a int, b text[])",
        "select exists (select from ugc.likes), array(select id from ugc.likes), 1 = all (select 1), \
         (1, 2) overlaps (3, 4), 'x'::content.kind, 'x'::ugc.kind[], 'a' collate \"C\", 1 operator(pg_catalog.+) 1",
        "select make_interval(days => 3), concat(variadic array['a', 'b']), (f).title, f.* , f from content.film_work f",
        "select 'жанр' as \"жанр\", xmin, ctid, pg_column from content.film_work natural join only content.extra",
        "with recursive t(id, parent) as (select id, parent from content.tree union all \
         select c.id, c.parent from content.tree c join t on t.id = c.parent) \
         search depth first by id set path cycle id set looped using trail select * from t",
    ];
    let refused: Vec<_> =
        queries.iter().map(|sql| (sql, check(sql, &schemas()))).filter(|(_, f)| !f.is_empty()).collect();
    assert!(refused.is_empty(), "{refused:#?}");
}

#[test]
fn all_findings_are_reported_in_the_order_of_the_text() {
    let sql = "select pg_sleep(1), x::public.trap\nfrom auth.users, film_work\nfor update; drop table x";
    assert_eq!(
        codes(sql),
        [
            "sql.function_not_allowed",
            "sql.type_not_allowed",
            "sql.schema_not_allowed",
            "sql.table_unqualified",
            "sql.locking",
            "sql.several_statements",
            "sql.not_select",
        ]
    );
}

#[rstest]
#[case::table("select 'ж', \"ё\"\n from content.a, auth.users", 2, 18)]
#[case::function("select 'жанр', pg_sleep(1)", 1, 16)]
#[case::second_statement("select 'ж';\n  select 2", 2, 3)]
#[case::token("select 'ж',\n 'ё' frmo frmo content.a", 2, 11)]
#[case::repeated_token("select (1), (2)\nfrom a ) b", 2, 8)]
#[case::end_of_input("select 'ж' from  ", 1, 16)]
#[case::unterminated("select 'ж',\n 'b", 2, 2)]
fn a_finding_stands_where_its_cause_is(#[case] sql: &str, #[case] line: u32, #[case] column: u32) {
    let findings = check(sql, &schemas());
    assert_eq!((findings[0].line, findings[0].column), (line, column), "{findings:#?}");
}

#[test]
fn an_unqualified_table_is_told_how_to_be_qualified() {
    let findings = check("select * from film_work", &schemas());
    let hint = "qualify it, such as content.film_work; allowed schemas: content, ugc";
    assert_eq!(findings[0].hint.as_deref(), Some(hint));
}

#[test]
fn a_watch_query_takes_its_keys_as_the_one_parameter() {
    let one = "select film_work_id from content.genre_film_work where genre_id = any($1)";
    assert_eq!(check_watch(one, &schemas()), []);
    assert_eq!(check_watch(&one.replace("$1", "$2"), &schemas())[0].code, "sql.parameter");
}

/// Fills the allowed length with as many repetitions as fit.
fn filled(before: &str, open: &str, middle: &str, close: &str) -> String {
    let times = (MAX_BYTES - before.len() - middle.len()) / (open.len() + close.len());
    format!("{before}{}{middle}{}", open.repeat(times), close.repeat(times))
}

#[rstest]
#[case::sum(filled("select ", "1+", "1", ""))]
#[case::signs(filled("select ", "- ", "1", ""))]
#[case::casts(filled("select 1", "", "", "::a"))]
#[case::set_operations(filled("select 1", "", "", " union select 1"))]
#[case::joins(filled("select 1 from content.a", "", "", " natural join content.a"))]
#[case::parentheses(filled("select ", "(", "1", ")"))]
#[case::arrays(filled("select array", "[", "1", "]"))]
#[case::sub_selects(filled("", "(select ", "1", ")"))]
#[case::calls(filled("select ", "abs(", "1", ")"))]
#[case::cases(filled("select ", "case when ", "1", " then 1 end"))]
#[case::negations(filled("select ", "not ", "true", ""))]
#[case::from(filled("select 1 ", "from (select 1 ", "", ") a"))]
#[case::with(filled("", "with a as (", "select 1", ") select 1"))]
#[case::open_parentheses(filled("select ", "(", "", ""))]
#[case::tables(filled("select from a", "", "", ",a"))]
fn a_query_as_deep_as_it_is_long_neither_crashes_nor_hangs(#[case] sql: String) {
    let started = Instant::now();
    let findings = check(&sql, &schemas());
    assert!(findings.iter().all(|finding| finding.code != "sql.unchecked"), "{findings:?}");
    assert!(started.elapsed() < Duration::from_secs(10), "{:?}", started.elapsed());
}

#[test]
fn a_long_sum_is_clean_up_to_what_the_parser_can_say() {
    let sum = |operands| format!("select {}1", "1+".repeat(operands));
    // A debug build comes with a parser that is not optimised, and needs seven times the stack.
    let short = if cfg!(debug_assertions) { 500 } else { 4900 };
    assert_eq!(codes(&sum(short)), Vec::<&str>::new());
    assert_eq!(codes(&sum(6000)), ["sql.too_deep"]);
}

#[test]
fn ten_megabytes_are_refused_at_once() {
    let sql = "select 1 -- ".repeat(1024 * 1024);
    assert_eq!(codes(&sql), ["sql.too_long"]);
    assert_eq!(check_table(&sql, &schemas())[0].code, "table.name");
}

#[rstest]
#[case("content.film_work", None)]
#[case("\"content\".\"Film Work\"", None)]
#[case("ugc.user", None)]
#[case("film_work", Some("table.name"))]
#[case("db.content.film_work", Some("table.name"))]
#[case("content.film_work f", Some("table.name"))]
#[case("content.film_work -- all", Some("table.name"))]
#[case("content.film_work; drop table x", Some("table.name"))]
#[case("(select 1)", Some("table.name"))]
#[case("content . film_work", Some("table.name"))]
#[case("content.\"film_work", Some("table.name"))]
#[case("", Some("table.name"))]
#[case("content.*", Some("sql.syntax"))]
#[case("1.a", Some("table.name"))]
#[case("auth.users", Some("sql.schema_not_allowed"))]
#[case("Content.film_work", None)]
#[case("\"Content\".film_work", Some("sql.schema_not_allowed"))]
fn a_source_table_is_schema_and_table(#[case] name: &str, #[case] code: Option<&str>) {
    assert_eq!(check_table(name, &schemas()).first().map(|finding| finding.code), code);
}

#[test]
fn a_source_table_s_finding_stands_in_its_name() {
    let findings = check_table("auth.users", &schemas());
    assert_eq!((findings[0].line, findings[0].column), (1, 1));
}

#[test]
fn a_query_as_deep_as_the_parser_allows_is_looked_at_on_a_small_stack() {
    let sql = format!("select {}1 as id", "1+".repeat(if cfg!(debug_assertions) { 500 } else { 4900 }));
    let look = || assert_eq!(vitrina_guard::check_keyed(&sql, &[]), []);
    std::thread::scope(|scope| {
        let thread = std::thread::Builder::new().stack_size(128 * 1024);
        thread.spawn_scoped(scope, look).unwrap().join().unwrap();
    });
}

#[test]
fn a_type_that_only_begins_like_a_lookup_is_a_type() {
    assert_eq!(codes("select 'x'::content.region, 'x'::ugc.regclass"), Vec::<&str>::new());
}

#[rstest]
#[case::named("to_tsvector('russian', title)")]
#[case::cast("to_tsvector('russian'::regconfig, title)")]
#[case::qualified("to_tsvector('pg_catalog.simple'::pg_catalog.regconfig, title)")]
#[case::left_out("to_tsvector(title) @@ to_tsquery('a') or jsonb_to_tsvector(data, '\"all\"') is null")]
#[case::a_headline("ts_headline(title, to_tsquery('a')) || ts_headline('simple', title, to_tsquery('a'))")]
#[case::a_headline_with_options("ts_headline(title::text, to_tsquery('a'), 'MaxWords=5')")]
fn a_text_search_by_a_built_in_configuration_is_allowed(#[case] expression: &str) {
    assert_eq!(codes(&format!("select {expression} as x from content.film_work")), Vec::<&str>::new());
}

#[rstest]
#[case::by_its_number("to_tsvector(id, title)")]
#[case::of_another_schema("to_tsvector('auth.words', title)")]
#[case::of_another_schema_and_cast("to_tsvector('auth.words'::regconfig, title)")]
#[case::looked_up("id::regconfig")]
#[case::in_an_array("'{simple}'::regconfig[]")]
#[case::where_a_number_would_become_one("coalesce(nullif('simple'::regconfig, 'simple'), id)")]
#[case::in_a_headline("ts_headline(id, 'text', 'a=b')")]
#[case::of_json("(select g from json_to_record('{\"g\": 3748}') as r(g regconfig))")]
fn a_text_search_configuration_is_not_looked_up(#[case] expression: &str) {
    let mut told = codes(&format!("select {expression} as x from content.film_work"));
    told.dedup();
    assert_eq!(told, ["sql.type_not_allowed"]);
}
