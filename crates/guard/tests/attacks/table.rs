//! The attacks, and the first layer that stops each of them.

#[derive(Debug, Clone, Copy)]
pub(crate) enum Stop {
    /// By the text: code, line and column.
    Text(&'static str, u32, u32),
    /// By what is behind the text: code.
    Plan(&'static str),
    /// By the rights of the login.
    Login,
    /// By the limits of the session.
    Session,
}

pub(crate) struct Attack {
    pub(crate) name: &'static str,
    pub(crate) sql: fn() -> String,
    pub(crate) stop: Stop,
}

use Stop::{Login, Plan, Session, Text};

macro_rules! attacks {
    ($($name:literal, $sql:expr, $stop:expr;)*) => {
        pub(crate) const ATTACKS: &[Attack] = &[$(Attack { name: $name, sql: || $sql.to_string(), stop: $stop }),*];
    };
}

/// Sub-queries within each other, whose column `a` is made of the one in them.
fn nested(times: usize, column: &str, innermost: &str) -> String {
    (0..times).fold(innermost.to_owned(), |query, _| format!("select {column} as a from ({query}) q"))
}

/// An expression within itself.
fn deep(times: usize, before: &str, behind: &str, innermost: &str) -> String {
    format!("select {}{innermost}{}", before.repeat(times), behind.repeat(times))
}

#[rustfmt::skip]
attacks! {
    // Statements that write.
    "a delete", "delete from content.film_work", Text("sql.not_select", 1, 1);
    "an insert", "insert into ugc.likes values (1, 1, 1)", Text("sql.not_select", 1, 1);
    "an update", "update content.film_work set title = ''", Text("sql.not_select", 1, 1);
    "a truncate", "truncate content.film_work", Text("sql.not_select", 1, 1);
    "a drop", "drop table content.film_work", Text("sql.not_select", 1, 1);
    "a grant", "grant all on content.film_work to public", Text("sql.not_select", 1, 1);
    "a new table", "create table content.x as select 1", Text("sql.not_select", 1, 1);
    "a copy to a program", "copy content.film_work to program 'id'", Text("sql.not_select", 1, 1);
    "a copy of a query", "copy (select * from auth.users) to stdout", Text("sql.not_select", 1, 1);
    "a block of code", "do $$ begin delete from content.film_work; end $$", Text("sql.not_select", 1, 1);
    "a call", "call content.rebuild()", Text("sql.not_select", 1, 1);
    "another role", "set role postgres", Text("sql.not_select", 1, 1);
    "an end of the transaction", "commit", Text("sql.not_select", 1, 1);
    "a prepared delete", "prepare p as delete from content.film_work", Text("sql.not_select", 1, 1);
    "an analysed delete", "explain analyze delete from content.film_work", Text("sql.not_select", 1, 1);
    "a lock", "lock table content.film_work", Text("sql.not_select", 1, 1);
    "a listener", "listen gossip", Text("sql.not_select", 1, 1);
    "a notification", "notify gossip", Text("sql.not_select", 1, 1);
    "a cursor", "declare c cursor with hold for select * from auth.users", Text("sql.not_select", 1, 1);
    "a refresh", "refresh materialized view content.top", Text("sql.not_select", 1, 1);
    // Writing inside of a SELECT.
    "a delete in a with query", "with d as (delete from content.film_work returning *)\nselect * from d", Text("sql.data_modifying", 1, 6);
    "an update in a with query", "with d as (update ugc.likes set value = 2 returning *) select * from d", Text("sql.data_modifying", 1, 6);
    "an insert in a with query", "with d as (insert into ugc.likes values (1, 2, 3) returning *) table d", Text("sql.data_modifying", 1, 6);
    "a merge in a with query", "with d as (merge into ugc.likes l using ugc.likes r on true when matched then delete) select 1", Text("sql.data_modifying", 1, 6);
    "a delete in a nested with query", "select * from (\n  with d as (delete from ugc.likes returning 1) table d) x", Text("sql.data_modifying", 2, 8);
    "a delete behind a with query", "with d as (select 1) delete from content.film_work", Text("sql.not_select", 1, 1);
    "a select into", "select * into content.copy from content.film_work", Text("sql.into", 1, 15);
    "a select into a temporary table", "select 1 into temp t union select 2", Text("sql.into", 1, 20);
    "rows locked for update", "select *\nfrom content.film_work\nfor update", Text("sql.locking", 3, 1);
    "rows locked in a sub-query", "select * from (select * from content.film_work for key share) x", Text("sql.locking", 1, 48);
    // Several statements in one.
    "a stacked drop", "select 1; drop table content.film_work", Text("sql.several_statements", 1, 11);
    "a closed parenthesis", "select 1) q; drop table content.film_work; select * from (select 1", Text("sql.syntax", 1, 9);
    "a comment at the end", "select 1 as x --\n; delete from content.film_work --", Text("sql.several_statements", 2, 3);
    "a comment that is not closed", "select 1 /* ", Text("sql.syntax", 1, 10);
    "a commit between selects", "select 1; commit; delete from content.film_work", Text("sql.not_select", 1, 11);
    "a backslash before a quote", "select '\\'; delete from content.film_work; --'", Text("sql.several_statements", 1, 13);
    "a dollar quote", "select $a$ $b$ $a$; delete from content.film_work; --$b$", Text("sql.several_statements", 1, 21);
    "nothing", " -- nothing\n;", Text("sql.empty", 1, 1);
    "a nul character", "select 1 \0 from content.film_work", Text("sql.syntax", 1, 10);
    // Tables that nobody may read.
    "accounts", "select email\nfrom auth.users", Text("sql.schema_not_allowed", 2, 6);
    "the product's own tables", "select config from etl.etl_pipelines", Text("sql.schema_not_allowed", 1, 20);
    "passwords", "select rolpassword from pg_catalog.pg_authid", Text("sql.schema_not_allowed", 1, 25);
    "passwords by an unqualified name", "select rolpassword from pg_authid", Text("sql.table_unqualified", 1, 25);
    "the list of tables", "select * from information_schema.tables", Text("sql.schema_not_allowed", 1, 15);
    "other people's statements", "select query from pg_stat_activity", Text("sql.table_unqualified", 1, 19);
    "statistics of values", "select most_common_vals from pg_catalog.pg_stats", Text("sql.schema_not_allowed", 1, 30);
    "large objects as a table", "select * from pg_catalog.pg_largeobject", Text("sql.schema_not_allowed", 1, 15);
    "an unqualified table", "select * from film_work", Text("sql.table_unqualified", 1, 15);
    "a with query that hides a table", "with users as (select 1) select * from auth.users", Text("sql.schema_not_allowed", 1, 40);
    "a with query that reads its namesake", "with users as (select * from users) select * from users", Text("sql.table_unqualified", 1, 30);
    "accounts in a sub-query of a column", "select (select max(email) from auth.users) as m", Text("sql.schema_not_allowed", 1, 32);
    "accounts in an order", "select 1 as x order by (select count(*) from auth.users)", Text("sql.schema_not_allowed", 1, 46);
    "accounts in a limit", "select 1 as x limit (select count(*) from auth.users)", Text("sql.schema_not_allowed", 1, 43);
    "accounts in a filter", "select count(*) filter (where 1 in (select id from auth.users)) from content.film_work", Text("sql.schema_not_allowed", 1, 52);
    "accounts in a window", "select sum(1) over (order by (select 1 from auth.users)) from ugc.likes", Text("sql.schema_not_allowed", 1, 45);
    "accounts in a join", "select * from ugc.likes l\n  join auth.users u on u.id = l.user_id", Text("sql.schema_not_allowed", 2, 8);
    "accounts in a lateral join", "select * from ugc.likes l, lateral (select email from auth.users where id = l.user_id) u", Text("sql.schema_not_allowed", 1, 55);
    "accounts in a union", "select 1 union all (select id from auth.users)", Text("sql.schema_not_allowed", 1, 36);
    "accounts in values", "values ((select email from auth.users))", Text("sql.schema_not_allowed", 1, 28);
    "accounts in an array", "select array(select email from auth.users) as a", Text("sql.schema_not_allowed", 1, 32);
    "accounts in grouping sets", "select 1 as x from ugc.likes group by grouping sets (((select id from auth.users)))", Text("sql.schema_not_allowed", 1, 71);
    "accounts by a quoted name", "select * from \"auth\".\"users\"", Text("sql.schema_not_allowed", 1, 15);
    "accounts by a unicode name", "select * from U&\"\\0061uth\".users", Text("sql.schema_not_allowed", 1, 15);
    "accounts by another unicode name", "select * from U&\"!0061uth\" uescape '!'.users", Text("sql.schema_not_allowed", 1, 15);
    "accounts with comments in the name", "select * from auth/**/./**/users", Text("sql.schema_not_allowed", 1, 15);
    "a homoglyph of an allowed schema", "select * from сontent.film_work", Text("sql.schema_not_allowed", 1, 15);
    "an allowed schema in capitals", "select * from \"Content\".film_work", Text("sql.schema_not_allowed", 1, 15);
    "a database named before the schema", "select * from other.content.film_work", Text("sql.schema_not_allowed", 1, 15);
    "accounts told by an error", "select (select email from auth.users)::int as x", Text("sql.schema_not_allowed", 1, 27);
    "accounts guessed by an error", "select 1 / (case when exists (select from auth.users where email like 's%') then 0 else 1 end) as x", Text("sql.schema_not_allowed", 1, 43);
    // Functions.
    "a sleep", "select pg_sleep(10)", Text("sql.function_not_allowed", 1, 8);
    "a qualified sleep", "select pg_catalog.pg_sleep(10)", Text("sql.function_not_allowed", 1, 8);
    "a sleep in capitals", "select PG_SLEEP(10)", Text("sql.function_not_allowed", 1, 8);
    "a quoted sleep", "select \"pg_sleep\"(10)", Text("sql.function_not_allowed", 1, 8);
    "a unicode sleep", "select U&\"\\0070g_sleep\"(10)", Text("sql.function_not_allowed", 1, 8);
    "a sleep in a limit", "select 1 as x from content.film_work limit length(pg_sleep(10)::text)", Text("sql.function_not_allowed", 1, 51);
    "a sleep in values", "select * from (values (1, pg_sleep(10)::text), (2, '')) v (a, b)", Text("sql.function_not_allowed", 1, 27);
    "a sleep in a join", "select 1 as x from ugc.likes l join ugc.likes r on pg_sleep(10) is null", Text("sql.function_not_allowed", 1, 52);
    "a sleep in a window frame", "select sum(1) over (order by film_id rows length(pg_sleep(10)::text) preceding) as x from ugc.likes", Text("sql.function_not_allowed", 1, 50);
    "a sleep in a range", "select * from generate_series(1, length(pg_sleep(10)::text)) n", Text("sql.function_not_allowed", 1, 41);
    "a file", "select * from pg_read_file('/etc/passwd') f", Text("sql.function_not_allowed", 1, 15);
    "a directory among functions", "select * from rows from (pg_ls_dir('/'), generate_series(1, 2)) as f (a, b)", Text("sql.function_not_allowed", 1, 26);
    "a file that is written", "select lo_export(1, '/tmp/x')", Text("sql.function_not_allowed", 1, 8);
    "a large object that is read", "select lo_get(1)", Text("sql.function_not_allowed", 1, 8);
    "a new large object", "select lo_from_bytea(0, 'x')", Text("sql.function_not_allowed", 1, 8);
    "another server", "select * from public.dblink('host=127.0.0.1', 'select 1') as t (a int)", Text("sql.function_not_allowed", 1, 15);
    "a setting", "select set_config('role', 'postgres', false) as x", Text("sql.function_not_allowed", 1, 8);
    "a setting that is read", "select current_setting('data_directory') as x", Text("sql.function_not_allowed", 1, 8);
    "a sequence", "select nextval('content.visits') as x", Text("sql.function_not_allowed", 1, 8);
    "a sequence that is set", "select setval('content.visits', 1000) as x", Text("sql.function_not_allowed", 1, 8);
    "a sequence as a table", "select last_value from auth.ids", Text("sql.schema_not_allowed", 1, 24);
    "sessions that are ended", "select pg_terminate_backend(pid) as x from content.film_work, (values (1)) v (pid)", Text("sql.function_not_allowed", 1, 8);
    "statements that are cancelled", "select pg_cancel_backend(1) as x", Text("sql.function_not_allowed", 1, 8);
    "an advisory lock", "select pg_advisory_lock(1)::text as x", Text("sql.function_not_allowed", 1, 8);
    "a tried advisory lock", "select pg_try_advisory_lock(id) as x from content.film_work", Text("sql.function_not_allowed", 1, 8);
    "a notification by a function", "select pg_notify('gossip', title)::text as x from content.film_work", Text("sql.function_not_allowed", 1, 8);
    "sql from text", "select query_to_xml('delete from content.film_work', true, true, '') as x", Text("sql.function_not_allowed", 1, 8);
    "a table from text", "select table_to_xml('auth.users', true, true, '') as x", Text("sql.function_not_allowed", 1, 8);
    "sql for words", "select * from ts_stat('select to_tsvector(email) from auth.users')", Text("sql.function_not_allowed", 1, 15);
    "sql for rewriting", "select ts_rewrite('a'::tsquery, 'select email::tsquery, email::tsquery from auth.users') as x", Text("sql.function_not_allowed", 1, 8);
    "sql for crosstabs", "select * from public.crosstab('select 1, 2, 3') as t (a int, b int)", Text("sql.function_not_allowed", 1, 15);
    "a function of a user with other rights", "select content.mail() as x", Text("sql.function_not_allowed", 1, 8);
    "a function of a user that writes", "select content.empty(1) as x", Text("sql.function_not_allowed", 1, 8);
    "a random value", "select random() as x", Text("sql.function_not_allowed", 1, 8);
    "the name of the login", "select current_user as x", Text("sql.function_not_allowed", 1, 8);
    "where the server is", "select inet_server_addr() as x", Text("sql.function_not_allowed", 1, 8);
    // Functions without a call.
    "a file as an attribute", "select ('/etc/passwd'::text).pg_read_file as x", Text("sql.function_not_allowed", 1, 8);
    "a file as a column", "select a.pg_read_file from unnest(array['/etc/passwd']) a", Text("sql.function_not_allowed", 1, 8);
    "a sequence as an attribute", "select (select 'content.visits'::text).nextval as x", Text("sql.function_not_allowed", 1, 8);
    "the text of a row as an attribute", "select f.record_out as x from content.film_work f", Plan("sql.function_not_allowed");
    "a function of a user as an attribute", "select f.mail_of as x from content.film_work f", Plan("sql.refused_by_source");
    "an operator of a user", "select operator(content.###) id as x from content.film_work", Text("sql.operator_not_allowed", 1, 8);
    "an operator of a user with any", "select 1 operator(content.###) any (select 2) as x", Text("sql.operator_not_allowed", 1, 10);
    "an order by an operator of a user", "select id from ugc.likes order by film_id using operator(content.<)", Text("sql.operator_not_allowed", 1, 49);
    "a cast by a user", "select length(card) as x from content.wallet", Plan("sql.function_not_allowed");
    "a cast by a user that is named", "select row(1)::content.card::text as x", Plan("sql.function_not_allowed");
    "a cast to json", "select to_jsonb(w) as x from content.wallet w", Plan("sql.function_not_allowed");
    "a domain that writes", "select 1::content.emptied as x", Plan("sql.function_not_allowed");
    "a type of another schema", "select 1::public.trap as x", Text("sql.type_not_allowed", 1, 11);
    "a name looked up in the catalogue", "select 'auth.users'::regclass as x", Text("sql.type_not_allowed", 1, 22);
    "a text search looked up by its number", "select g::oid::regconfig::text as x from generate_series(3700, 3800) g", Text("sql.type_not_allowed", 1, 16);
    "a text search looked up in a record", "select g::text as x from json_to_record('{\"g\": 3748}') r(g regconfig)", Text("sql.type_not_allowed", 1, 60);
    "a text search by its number", "select to_tsvector(g, 'film') as x from generate_series(3748, 3748) g", Text("sql.type_not_allowed", 1, 8);
    "a text search of another schema", "select to_tsvector('auth.words', 'film') as x", Text("sql.type_not_allowed", 1, 8);
    "an array of names looked up", "select '{auth.users}'::_regclass as x", Text("sql.type_not_allowed", 1, 24);
    "a collation of another schema", "select 'a' collate public.trap as x", Text("sql.type_not_allowed", 1, 12);
    "a type of a column list", "select * from json_to_record('{}') as t (a public.trap)", Text("sql.type_not_allowed", 1, 44);
    "a parameter", "select * from content.film_work where id = $1", Text("sql.parameter", 1, 44);
    "xml", "select xmlparse(document '<a/>') as x", Text("sql.construct_not_allowed", 1, 8);
    "a table of xml", "select * from xmltable('/a' passing '<a/>' columns b text)", Text("sql.construct_not_allowed", 1, 15);
    "a sampled table", "select id from content.film_work tablesample system (1)", Text("sql.construct_not_allowed", 1, 46);
    // Work that no timeout ends. What they do to a server is modest, since it cannot be stopped there.
    "a normalization of a long text", "select normalize(repeat(U&'\\0301\\0323', 6000)) as x", Text("sql.too_much_work", 1, 8);
    "a normalization of a text that is built first", "select length(normalize(a)) as x from (select repeat('x', 60000) as a) b", Text("sql.too_much_work", 1, 15);
    "a normalization of an aggregate", "select normalize(string_agg(title, '')) as x from content.film_work", Text("sql.too_much_work", 1, 8);
    "a question for a normal form", "select string_agg(title, '') is nfc normalized as x from content.film_work", Text("sql.too_much_work", 1, 30);
    "a normalization as an attribute", "select (repeat('x', 10)).normalize as x", Text("sql.function_not_allowed", 1, 8);
    "two long arrays", "select array_fill(1, array[8000]) && array_fill(2, array[8000]) as x", Text("sql.too_much_work", 1, 35);
    "two long arrays, one in the other", "select (array_fill(1, array[8000]) || array[2]) <@ array_fill(1, array[8000]) as x", Text("sql.too_much_work", 1, 49);
    "two arrays of rows", "select (select array_agg(id) from content.film_work) @> array(select film_id from ugc.likes) as x", Text("sql.too_much_work", 1, 54);
    "two arrays of rows by a function", "select arrayoverlap(a, a) as x from (select array_agg(id) as a from content.film_work) f", Text("sql.too_much_work", 1, 8);
    "an array that grows", "with recursive n (i, a) as (select 1, array[1] union all select i + 1, a || a from n where i < 5) select a && a as x from n", Text("sql.too_much_work", 1, 108);
    "an array under another name", "select t.z && t.z as x from (select * from (select array_agg(id), 1 from content.film_work) s (y, one)) t (z)", Text("sql.too_much_work", 1, 12);
    "the distance of two polygons", "select polygon(500, circle '((0,0),9)') <-> polygon(500, circle '((99,1),2)') as x", Text("sql.too_much_work", 1, 41);
    "a path that doubles", nested(11, "a + a", "select '((1,2),(3,4))'::path as a") + " where a <-> a > 0", Text("sql.too_much_work", 1, 340);
    "two polygons", "select polygon(1400, circle '((0,0),9)') && polygon(1400, circle '((1,1),2)') as x", Text("sql.too_much_work", 1, 42);
    "a long pattern", "select repeat('a', 50000) like '%' || repeat('b', 12000) as x", Text("sql.too_much_work", 1, 27);
    "a long needle", "select strpos(repeat('a', 60000), repeat('b', 12000)) as x", Text("sql.too_much_work", 1, 8);
    "a long needle that is replaced", "select replace(repeat('a', 60000), repeat('b', 12000), '') as x", Text("sql.too_much_work", 1, 8);
    "a long list of letters", "select translate(repeat('a', 12000), repeat('a', 12000), '') as x", Text("sql.too_much_work", 1, 8);
    "a long list of keys", "select string_agg(title, '')::jsonb ?| array_agg(title) as x from content.film_work where false", Text("sql.too_much_work", 1, 37);
    "a long query of words", "select plainto_tsquery('simple', repeat('a b ', 16000)) as x", Text("sql.too_much_work", 1, 8);
    "numbers of many digits", "select 1e131000 % 1e131000 as x, 1e131000 % 1e131000 as y", Text("sql.too_much_work", 1, 34);
    "a long text", "select length(repeat('x', 100000)) as x", Text("sql.value_too_large", 1, 15);
    "a text of a size that is computed", "select length(repeat('x', 1000 * 100)) as x", Text("sql.value_too_large", 1, 15);
    "a text within a text", "select length(repeat(lpad('x', 5000), 50)) as x", Text("sql.value_too_large", 1, 15);
    "a long width", "select length(format('%100000s', 'x')) as x", Text("sql.value_too_large", 1, 15);
    "a long type", "select length('x'::char(100000)) as x", Text("sql.value_too_large", 1, 18);
    "a sub-query that doubles a text", nested(7, "a || a", "select repeat('x', 1000) as a"), Text("sql.value_too_large", 1, 10);
    "a range within a range", deep(14, "(", " between false and true)", "(1 between 0 and 2)"), Text("sql.too_much_work", 1, 8);
    "a symmetric range within a range", deep(7, "(", " between symmetric false and true)", "(1 between 0 and 2)"), Text("sql.too_much_work", 1, 8);
    "a list within a list", deep(9, "(", " in (f.id > 0, f.id > 1, f.id > 2))", "f.id = 2") + " from content.film_work f", Text("sql.too_much_work", 1, 8);
    "a with query that is copied", "with a as not materialized (select 1 as x), b as not materialized (select p.x from a p, a q) select p.x from b p, b q", Text("sql.too_much_work", 1, 6);
    "a sub-query of a column that is copied", format!("select {} as y from (select (select normalize(repeat(U&'\\0301\\0323', 1500))) as x) q", ["x"; 40].join(" || ")), Text("sql.too_much_work", 1, 8);
    "a path that compares a document with itself", "select jsonb_path_exists(jsonb_agg(id), 'strict $[*] == $[*]') as x from content.film_work", Text("sql.too_much_work", 1, 8);
    "a path as an operator", "select jsonb_agg(id) @? 'strict $[*] ? (@ == $[*])' as x from content.film_work", Text("sql.too_much_work", 1, 22);
    "an identifier of quotes", "select parse_ident('\"' || string_agg('\"\"', '') || '\"') as x from content.film_work", Text("sql.too_much_work", 1, 8);
    "a rank of long texts", "select ts_rank(string_agg(title, ' ')::tsvector, string_agg(title, ' & ')::tsquery) as x from content.film_work where false", Text("sql.too_much_work", 1, 8);
    "a headline of a long text", "select ts_headline('simple', string_agg(title, ' '), 'x'::tsquery) as x from content.film_work", Text("sql.too_much_work", 1, 8);
    "two long arrays of short texts", "select a::varchar(10)[] && a::varchar(10)[] as x from (select array_agg(title) as a from content.film_work) q", Text("sql.too_much_work", 1, 25);
    "a query of words as an attribute", "select (q.t).plainto_tsquery as x from (select string_agg(title, ' ') as t from content.film_work) q", Text("sql.too_much_work", 1, 1);
    "a text as xml", "select string_agg('<a/>', '')::xml as x from content.film_work where false", Text("sql.type_not_allowed", 1, 32);
    "quotes that are doubled in a format", deep(14, "format('%L', ", ")", "''''''''''''''''''''''"), Text("sql.value_too_large", 1, 8);
    "quotes that are doubled around a column", format!("select position('b' || x in x || x) as y from ({} as x from content.film_work) q", deep(12, "quote_literal(", ")", "title")), Text("sql.too_much_work", 1, 8);
    "a sub-query that doubles an expression under its name", nested(13, "q.a + q.a", "select id as a from content.film_work"), Text("sql.too_much_work", 1, 92);
    "a sub-query that doubles an expression", nested(13, "a + a", "select id as a from content.film_work"), Text("sql.too_much_work", 1, 80);
    "a row that is written out within a row", format!("select f1 from ({}) q", (0..14).fold("select 1 as f1, id as f2 from content.film_work".to_owned(), |query, _| format!("select (row(f1, f2)).* from ({query}) q"))), Text("sql.too_much_work", 1, 169);
    "a column that is doubled under the name of a join", (0..15).fold("select id as a from content.film_work".to_owned(), |query, _| format!("select j.a + j.a as a from ({query}) p join (select 1::bigint as a) r using (a) as j")), Text("sql.too_much_work", 1, 1);
    "a union that doubles an expression", (0..14).fold("select id as a from content.film_work".to_owned(), |query, _| format!("select a + a as a from ({query} union all select 1) q")), Text("sql.too_much_work", 1, 104);
    "many copies of a long expression", format!("select count(*) as x from (select distinct {} from (select greatest({}) as a from content.film_work f) p) q", ["*"; 300].join(","), ["id"; 400].join(",")), Text("sql.too_much_work", 1, 1);
    "a long expression in the conditions of natural joins", format!("select 1 as x from (select greatest({}) as a from content.film_work f) p{}", ["id"; 400].join(","), (0..150).map(|n| format!(" natural join (select 5::bigint as a) b{n}")).collect::<String>()), Text("sql.too_much_work", 1, 1);
    "many joins", format!("select 1 as x from content.film_work f0{}", (1..=100).map(|n| format!(" left join content.film_work f{n} using (id)")).collect::<String>()), Text("sql.too_much_work", 1, 1);
    "a row within a row as a text", format!("select octet_length({}repeat('\"', 800){}) as x", "(row(".repeat(8), "))::text".repeat(8)), Text("sql.value_too_large", 1, 22);
    "an array within an array as a text", format!("select octet_length({}repeat('\"', 800){}) as x", "(array[".repeat(8), "])::text".repeat(8)), Text("sql.value_too_large", 1, 22);
    "all paths of all paths", "select jsonb_path_exists(jsonb_agg(id), 'strict $.**.**.**') as x from content.film_work", Text("sql.too_much_work", 1, 8);
    "a filled up array", "select octet_length((array['a']::char(100000)[])[1]) as x", Text("sql.value_too_large", 1, 32);
    "a filled up column of a document", "select octet_length(a) as x from json_to_record('{\"a\":\"x\"}') as t(a char(100000))", Text("sql.value_too_large", 1, 1);
    "a filled up value of a row", "select octet_length(title::char(100000)) as x from content.film_work", Text("sql.value_too_large", 1, 26);
    "a text that a function fills up", "select bpchar('a'::bpchar, 50000, true) as x", Text("sql.function_not_allowed", 1, 8);
    "a document that is indented", format!("select octet_length(jsonb_pretty('{}{}'::jsonb)) as x", "[".repeat(500), "]".repeat(500)), Text("sql.value_too_large", 1, 21);
    "a headline of long marks", format!("select ts_headline('simple', '{}', to_tsquery('simple', 'a'), 'HighlightAll=true,StartSel={}') as x", "a ".repeat(500), "b".repeat(900)), Text("sql.value_too_large", 1, 8);
    // What looks something up, in a way that no list of functions shows.
    "types by their numbers", "select t from (select case when g < 0 then pg_typeof(g) else g end::text as t from generate_series(16384, 17000) g) q where t like 'auth.%'", Text("sql.function_not_allowed", 1, 44);
    "a role that may be there", "select 'nobody=r/postgres'::aclitem::text as x", Text("sql.type_not_allowed", 1, 29);
    "a comment by an attribute in a list of values", "select x from (values ((16407::oid).obj_description), (null)) v(x)", Text("sql.function_not_allowed", 1, 1);
    "a name by an attribute in a limit", "select id from content.film_work limit length((16407::oid).regclass::text)", Text("sql.function_not_allowed", 1, 68);
    // Behind views.
    "accounts behind a view", "select id, email from content.people", Plan("sql.schema_not_allowed");
    "accounts behind two views", "select film_id, email from content.peoples_likes", Plan("sql.schema_not_allowed");
    "accounts behind a view that the planner leaves out", "select id from content.unused", Plan("sql.schema_not_allowed");
    "the product's own tables behind a view", "select config from content.configs", Plan("sql.schema_not_allowed");
    "passwords behind a view", "select rolname from content.logins", Plan("sql.schema_not_allowed");
    "settings behind a view", "select name from content.settings", Plan("sql.schema_not_allowed");
    "a sleep behind a view", "select id from content.slow", Plan("sql.function_not_allowed");
    "a sleep in the limit of a view", "select id from content.limited", Plan("sql.function_not_allowed");
    "locks behind a view", "select id from content.locked", Plan("sql.locking");
    "a sequence behind a view", "select visit from content.counted", Plan("sql.function_not_allowed");
    "other rights behind a view", "select id from content.mailed", Plan("sql.function_not_allowed");
    "an operator behind a view", "select x from content.operated", Plan("sql.function_not_allowed");
    // Not granted.
    "a table that was not granted", "select note from content.private", Login;
    "a table that was not granted, in a join", "select f.id, p.note from content.film_work f left join content.private p using (id)", Login;
    // Without end.
    "more text than is read", "select 1 -- ".repeat(1400), Text("sql.too_long", 1, 1);
    "operands without end", format!("select {}1", "1+".repeat(6000)), Text("sql.too_deep", 1, 1);
    "a giant join", "select count(*) as x from content.film_work a, content.film_work b, content.film_work c, content.film_work d, content.film_work e", Session;
    "a recursive bomb", "with recursive n as (select 1 as i union all select (i + 1) % 1000 from n) select count(*) as x from n", Session;
    "a recursive bomb that doubles", "with recursive n as (select repeat('x', 1000) as i union all select i || i from n) select max(length(i)) as x from n", Session;
    "a series without end", "select n from generate_series(1, 9000000000000000000) n", Session;
    "a series without end that is counted", "select count(*) as x from generate_series(1, 9000000000000000000) n", Session;
    "huge values of rows", "select repeat(title, 1000000) as x from content.film_work", Session;
    "a regular expression without end", "select regexp_count(repeat('a', 60000), '(a*)*(a*)*(a*)*b') as x from content.film_work where id > 0", Session;
    "values of rows told by an error", "select title::int as x from content.film_work", Session;
}
