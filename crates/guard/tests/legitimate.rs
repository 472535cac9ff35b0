//! Queries that people write for marts: every layer lets them pass, and they answer.

use vitrina_guard::{SampleLimits, check, check_plan, sample};
use vitrina_testbed::Database;

const CINEMA: &str = "
    create schema content; create schema ugc;
    create type content.kind as enum ('movie', 'series');
    create table content.film_work (id int primary key, title text, description text, rating numeric(3, 1), kind content.kind,
      tags text[], data jsonb, created timestamptz not null, modified timestamptz not null);
    create table content.genre (id int primary key, name text);
    create table content.genre_film_work (film_work_id int, genre_id int);
    create table content.person (id int primary key, full_name text, parent int);
    create table content.person_film_work (film_work_id int, person_id int, role text);
    create table ugc.ratings (film_id int, user_id int, score int, at timestamptz);
    create table ugc.views (film_id int, user_id int, seconds int, at timestamptz, during tstzrange, address inet);
    create view content.movies as select id, upper(title) as title, rating from content.film_work where kind = 'movie';
    insert into content.film_work select n, 'Film ' || n, 'About ' || n, n % 100 / 10.0, case n % 2 when 0 then 'movie' else 'series' end::content.kind,
      array['a', 'b' || n % 3], jsonb_build_object('items', jsonb_build_array(n, n + 1), 'year', 2000 + n % 25), '2024-01-01', '2024-02-01'
      from generate_series(1, 50) n;
    insert into content.genre values (1, 'War'), (2, 'Comedy');
    insert into content.genre_film_work select n, n % 2 + 1 from generate_series(1, 50) n;
    insert into content.person select n, 'Person ' || n, nullif(n / 2, 0) from generate_series(1, 20) n;
    insert into content.person_film_work select n, n % 20 + 1, case n % 2 when 0 then 'actor' else 'director' end from generate_series(1, 50) n;
    insert into ugc.ratings select n % 50 + 1, n, n % 10 + 1, '2024-03-01'::timestamptz + n * interval '1 hour' from generate_series(1, 300) n;
    insert into ugc.views select n % 50 + 1, n % 7, n, '2024-03-01'::timestamptz + n * interval '7 minutes',
      tstzrange('2024-03-01'::timestamptz, '2024-03-01'::timestamptz + n * interval '7 minutes'), '10.0.0.1' from generate_series(1, 300) n";

const QUERIES: &[(&str, &str)] = &[
    ("columns of a table", "select id, title, rating from content.film_work"),
    ("a whole table", "table content.genre"),
    ("a semicolon and a comment", "select id, title from content.film_work; -- the films"),
    ("an order and a limit inside", "select * from (select id, title from content.film_work order by rating desc nulls last limit 5) f"),
    ("a view", "select id, title from content.movies where rating > 1"),
    ("constants", "select * from (values (1, 'a'), (2, 'b')) v (id, name)"),
    ("joins and aggregates", "select f.id, f.title, coalesce(round(avg(r.score), 2), 0)::numeric(4, 2) as rating, count(r.score) as votes
        from content.film_work f left join ugc.ratings r on r.film_id = f.id group by f.id, f.title having count(*) > 0"),
    ("documents of children", "select f.id, jsonb_agg(jsonb_build_object('id', g.id, 'name', g.name) order by g.name) filter (where g.id is not null) as genres
        from content.film_work f left join content.genre_film_work gf on gf.film_work_id = f.id left join content.genre g on g.id = gf.genre_id group by f.id"),
    ("arrays by role", "select f.id, array_agg(distinct p.full_name order by p.full_name) filter (where pf.role = 'actor') as actors,
        string_agg(p.full_name, ', ' order by p.id) as everybody
        from content.film_work f join content.person_film_work pf on pf.film_work_id = f.id join content.person p on p.id = pf.person_id group by f.id"),
    ("ranks in windows", "select id, kind, rank() over w as place, dense_rank() over w as dense, ntile(4) over w as quarter,
        percent_rank() over w as share, row_number() over (partition by kind order by rating desc, id) as number
        from content.film_work window w as (partition by kind order by rating desc)"),
    ("moving sums", "select film_id, at, sum(score) over (partition by film_id order by at rows between 6 preceding and current row) as week,
        avg(score) over (order by at range between interval '1 day' preceding and current row) as day,
        lag(score, 1, 0) over (partition by film_id order by at) as before, first_value(score) over (partition by film_id order by at) as first
        from ugc.ratings"),
    ("groups of rows by gaps", "with marked as (select user_id, at, case when at - lag(at) over (partition by user_id order by at) > interval '30 minutes' then 1 else 0 end as starts from ugc.views),
        visits as (select user_id, at, sum(starts) over (partition by user_id order by at) as visit from marked)
        select user_id, visit, min(at) as began, max(at) - min(at) as lasted, count(*) as views from visits group by user_id, visit"),
    ("with queries", "with best as (select film_id, avg(score) as score from ugc.ratings group by film_id), top as materialized (select * from best where score > 3)
        select f.id, f.title, t.score from top t join content.film_work f on f.id = t.film_id"),
    ("a tree", "with recursive tree (id, parent, depth, path) as (select id, parent, 0, array[id] from content.person where parent is null
        union all select p.id, p.parent, t.depth + 1, t.path || p.id from content.person p join tree t on t.id = p.parent)
        select id, depth, array_to_string(path, '/') as path from tree"),
    ("a tree with cycles", "with recursive t (id, parent) as (select id, parent from content.person where parent is null union all
        select p.id, p.parent from content.person p join t on t.id = p.parent) search depth first by id set place cycle id set looped using trail
        select id, looped from t"),
    ("the best of each", "select distinct on (film_id) film_id, user_id, score from ugc.ratings order by film_id, score desc, at desc"),
    ("lateral sub-queries", "select f.id, last.score, last.at from content.film_work f
        left join lateral (select r.score, r.at from ugc.ratings r where r.film_id = f.id order by r.at desc limit 3) last on true"),
    ("grouping sets", "select kind, date_trunc('month', created)::date as month, grouping(kind) as all_kinds, count(*) as films
        from content.film_work group by grouping sets ((kind, date_trunc('month', created)), (kind), ())"),
    ("a cube and a roll-up", "select kind, rating > 5 as good, count(*) as films from content.film_work group by cube (kind, (rating > 5))
        union all select kind, null, count(*) from content.film_work group by rollup (kind)"),
    ("quantiles", "select film_id, percentile_cont(0.5) within group (order by score) as median, percentile_disc(array[0.25, 0.75]) within group (order by score) as quarters,
        mode() within group (order by score) as usual, stddev_samp(score) as spread, corr(score, user_id) as corr, regr_slope(score, user_id) as slope
        from ugc.ratings group by film_id"),
    ("time zones", "select date_trunc('day', at at time zone 'Europe/Moscow')::date as day, (at at time zone 'UTC')::time as time,
        extract(isodow from at) as weekday, extract(epoch from at)::bigint as epoch, to_char(at, 'YYYY-\"W\"IW') as week from ugc.views"),
    ("a calendar", "select d::date as day, count(v.film_id) as views from generate_series('2024-03-01'::timestamptz, '2024-03-10', '1 day') d
        left join ugc.views v on v.at >= d and v.at < d + interval '1 day' group by d"),
    ("intervals and ages", "select id, age(modified, created) as age, make_interval(days => 3) as three, justify_hours(interval '27 hours') as justified,
        date_bin('15 minutes', created, '2001-01-01') as bin, now() - modified > interval '7 days' as old, current_date - 7 as week_ago from content.film_work"),
    ("documents taken apart", "select f.id, item::int as item, n from content.film_work f, jsonb_array_elements_text(f.data -> 'items') with ordinality as i (item, n)
        where f.data ->> 'year' is not null and f.data @> '{\"year\": 2001}' or f.data ? 'items'"),
    ("paths in documents", "select id, jsonb_path_query_first(data, '$.items[0]') as first, data #>> '{items,1}' as second, jsonb_typeof(data) as kind,
        (select jsonb_object_agg(key, value) from jsonb_each(data)) as copy, jsonb_set(data, '{seen}', 'true') as seen from content.film_work"),
    ("records of documents", "select f.id, x.year, x.items from content.film_work f, jsonb_to_record(f.data) as x (year int, items jsonb)"),
    ("rows as documents", "select id, to_jsonb(g) as document, row_to_json(g)::text as text, json_build_array(id, name) as list from content.genre g"),
    ("arrays", "select id, tags[1] as first, cardinality(tags) as tags, 'a' = any (tags) as has_a, tags || array['z'] as more, array_position(tags, 'a') as place,
        array(select distinct t from unnest(tags) t order by 1) as sorted, tags && array['b1', 'b2'] as some from content.film_work"),
    ("texts", "select id, initcap(lower(title)) as a, split_part(title, ' ', 2)::int as n, regexp_replace(title, '\\D', '', 'g') as digits, md5(title) as hash,
        left(title, 3) || lpad(id::text, 5, '0') as code, format('%s (%s)', title, kind) as label, trim(both 'F' from title) as trimmed,
        position('i' in title) as i, overlay(title placing 'X' from 1 for 1) as x, substring(title from '[0-9]+') as found,
        encode(sha256(convert_to(title, 'UTF8')), 'hex') as sha, title ilike '%film%' as is_film, title similar to 'F%' as is_f from content.film_work"),
    ("casts", "select id::text as a, rating::float8 as b, '5'::int as c, kind::text as d, 'movie'::content.kind as e, cast(created as date) as f,
        title collate \"C\" as g, b'101' as h, 1.5::numeric(10, 2) as i, '{1,2}'::int[] as j, null::uuid as k from content.film_work"),
    ("conditions", "select id, case when rating >= 8 then 'good' when rating is null then 'unknown' else 'other' end as class, nullif(title, '') as title,
        greatest(rating, 5) as most, least(rating, 5) as least, rating between symmetric 8 and 2 as middling, title is distinct from description as differs
        from content.film_work where (kind, id) in (select kind, id from content.film_work) and not exists (select from ugc.ratings r where r.film_id = -film_work.id)"),
    ("sets", "select film_id from ugc.ratings except select film_id from ugc.views where seconds < 5 union all (select id from content.film_work intersect select film_id from ugc.views)"),
    ("ranges", "select film_id, lower(during) as began, during @> at as inside, range_merge(during, during) as merged, tstzrange(at, at + interval '1 hour') && during as overlaps,
        (at, interval '1 hour') overlaps (at, interval '1 day') as both from ugc.views"),
    ("networks", "select film_id, host(address) as host, masklen(address) as bits, address << inet '10.0.0.0/8' as inner from ugc.views"),
    ("search", "select id, ts_rank(to_tsvector('english', title), websearch_to_tsquery('english', 'film')) as rank, to_tsvector('simple', title) @@ plainto_tsquery('simple', 'film') as found
        from content.film_work"),
    ("mathematics", "select id, round(ln(id + 1)::numeric, 3) as ln, power(rating, 2) as square, width_bucket(rating, 0, 10, 5) as bucket, mod(id, 7) as m, sqrt(id) as root,
        ceil(rating) as up, trunc(rating) as down, sign(rating - 5) as sign, gcd(id, 12) as gcd, atan2(id, 1) as angle from content.film_work"),
    ("retention", "with first as (select user_id, min(date_trunc('day', at)) as cohort from ugc.views group by user_id)
        select f.cohort, extract(day from date_trunc('day', v.at) - f.cohort)::int as day, count(distinct v.user_id) as users,
        count(distinct v.user_id)::numeric / sum(count(distinct v.user_id)) over (partition by f.cohort) as share
        from first f join ugc.views v using (user_id) group by 1, 2"),
    ("a pivot", "select film_id, count(*) filter (where score = 10) as tens, sum(case when score < 5 then 1 else 0 end) as low, bool_or(score > 9) as loved,
        every(score > 0) as valid, any_rated.n from ugc.ratings, lateral (select count(*) as n from ugc.views v where v.film_id = ratings.film_id) any_rated group by film_id, any_rated.n"),
    ("a full join", "select coalesce(r.film_id, v.film_id) as film_id, r.score, v.seconds from (select film_id, avg(score) as score from ugc.ratings group by 1) r
        full join (select film_id, sum(seconds) as seconds from ugc.views group by 1) v using (film_id)"),
    ("normal forms", "select id, normalize(title) as title, title is nfc normalized as is_nfc, normalize(left(description, 1000), NFKC) as description,
        normalize(left(string_agg(title, ' '), 1000)) as all_titles from content.film_work group by id"),
    ("tags beside tags", "select f.id, count(*) as like_it, bool_or(f.tags @> g.tags) as has_all from content.film_work f
        join content.film_work g on f.tags && g.tags and f.id < g.id group by f.id"),
    ("tags that are gathered", "with g as (select gf.film_work_id as id, array_agg(g.name order by g.name) as genres, string_agg(g.name, ', ') as list
          from content.genre g join content.genre_film_work gf on gf.genre_id = g.id group by 1)
        select id, genres && array['War', 'Drama'] as is_loud, genres @> array['Comedy'] as is_funny, array['War'] <@ genres as has_war, 'War' = any (genres) as war,
          list like '%War%' as a, list ilike '%comedy%' as b, position('War' in list) as c, replace(list, 'War', 'Peace') as d, trim(both ', ' from list) as e,
          list like '%Drama%' as f, list not like '%Noir%' as h, split_part(list, ', ', 1) as i, string_to_array(list, ', ') as j, array_to_string(genres, ' / ') as k from g"),
    ("shapes", "select id, point(id, 1) <-> point '(3,4)' as distance, box '((0,0),(9,9))' @> point(id, id) as inside, circle '((0,0),5)' && circle(point(id, 0), 1) as near,
        polygon '((0,0),(0,9),(9,9),(9,0))' @> point(id, 2) as within, polygon(12, circle '((0,0),5)') && polygon '((0,0),(1,1),(2,0))' as both from content.film_work"),
    ("ranges beside ranges", "select film_id, during && tstzrange('2024-03-01', '2024-03-05') as early, at <@ during as inside, int4range(0, 100) @> seconds as short,
        daterange('2024-03-01', null) @> at::date as spring, during -|- during as beside, during * tstzrange(at, null) as rest from ugc.views"),
    ("texts that are filled up", "select id, lpad(id::text, 8, '0') as code, rpad(title, 30, '.') as line, repeat('*', rating::int) as stars, repeat('-', least(id, 20)) as bar,
        repeat(' ', 4) || title as indented, format('%-20s|%5s', title, id) as row, title::char(40) as wide, array_fill(0, array[7]) as week from content.film_work"),
    ("letters that are replaced", "select id, replace(replace(replace(replace(replace(replace(replace(replace(lower(title), 'щ', 'shch'), 'ж', 'zh'), 'ч', 'ch'), 'ш', 'sh'), 'ю', 'yu'), 'я', 'ya'), 'ё', 'yo'), ' ', '-') as slug,
        translate(title, 'абвгдезийклмнопрстуфхцыэ', 'abvgdezijklmnoprstufhcye') as latin, regexp_replace(regexp_replace(title, '[^a-z]+', '-', 'g'), '-$', '') as words from content.film_work"),
    ("documents compared", "select id, data @> '{\"year\": 2001}' as new, data ?| array['items', 'parts'] as has_parts, data ?& array['items', 'year'] as is_whole, data - 'year' as rest,
        data - array['year', 'seen'] as less, data #- '{items,0}' as shorter, data || jsonb_build_object('seen', true) as more,
        (select jsonb_agg(e) from jsonb_array_elements(data -> 'items') e) @> '[1]' as has_one from content.film_work"),
    ("scores", "select id, exp(-extract(epoch from now() - created) / 8640000.0) * power(0.99, id) * coalesce(rating, 0) * ln(id + 1) as score,
        100.0 * rating / nullif(max(rating) over (), 0) as share, round((100 * 3.5)::numeric / 7, 2) as constant, (rating * 10)::numeric ^ 2 as square from content.film_work"),
    ("numbers of a series", "with recursive n (i, f) as (select 1, 1::numeric union all select i + 1, f * (i + 1) from n where i < 20) select i, f, i * i as square, f / i as part from n"),
    ("columns of columns", "with a as (select id, coalesce(rating, 0) as x, coalesce(id, 1) as y from content.film_work), b as (select *, x + y as s, x * y as p, x - y as d from a),
        c as (select *, s / nullif(p, 0) as q, case when s > p then s else p end as m, greatest(s, p, d) as g from b), d as (select *, q + m + g + s as t, m * g as u from c)
        select id, t / nullif(u, 0) as v, t + u + q + m + g as w, case when t > u then t - u when t < u then u - t else t end as z from d"),
    ("first and last", "select kind, (array_agg(rating order by id))[1] - (array_agg(rating order by id desc))[1] as change, (array_agg(title order by id))[1] like '%a%' as a,
        (array_agg(created order by id))[1] - min(created) as age from content.film_work group by kind"),
    ("rows of a gathered list", "select max(t) - min(t) as spread, sum(u) / nullif(max(t), 0) as part from (select unnest(array_agg(rating)) as t, unnest(array_agg(id)) as u from content.film_work) q"),
    ("ranges and lists", "select id, rating between 1 and 9 as usual, rating between symmetric 9 and 1 as turned, id in (1, 2, 3) or rating in (id, id + 1, 5) as chosen,
        case when rating not between 2 and 8 then 'far' else 'near' end as place from content.film_work where created between '2000-01-01' and now()"),
    ("a with query written in place", "with f as not materialized (select id, title, kind from content.film_work) select id, title from f where kind is not null"),
    ("paths of documents", "select id, jsonb_path_query_first(data, '$.items[*] ? (@ > 1)') as item, data @? '$.year' as has_year, jsonb_path_exists(jsonb_build_array(data), '$[0].year') as dated from content.film_work"),
    ("typed columns of a list", "select f.id, x.score - x.prev as change, x.score / nullif(x.prev, 0) as part from content.film_work f
        cross join lateral (select jsonb_agg(jsonb_build_object('score', r.score, 'prev', r.score)) as j from ugc.ratings r where r.film_id = f.id) q
        cross join lateral jsonb_to_recordset(q.j) as x(score int, prev int)"),
    ("words and their places", "select a.n - b.n as apart from (select string_agg(title, ',') as t from content.film_work) q, string_to_table(q.t, ',') with ordinality as a(w, n),
        string_to_table(q.t, ',') with ordinality as b(w, n) where a.n = b.n + 1"),
    ("the first of gathered rows", "select (array(select score from ugc.ratings order by film_id desc))[1] - (array(select score from ugc.ratings order by film_id))[1] as change,
        (coalesce(array_agg(score), '{}'))[1] - (coalesce(array_agg(score), '{}'))[2] as next from ugc.ratings"),
    ("a part of a list as a number", "select (jsonb_agg(score) ->> 0)::numeric / nullif((jsonb_agg(score) ->> 1)::numeric, 0) as part from ugc.ratings"),
    ("a share of a document", "select key, value::numeric / sum(value::numeric) over () as share from jsonb_each_text((select jsonb_object_agg(film_id, score) from ugc.ratings))"),
    ("a path that compares with a constant", "select jsonb_path_query_first(jsonb_agg(to_jsonb(r)), '$[*] ? (@.score > 5 && @.film_id == 1)') as first from ugc.ratings r"),
    ("a union of two tables below", "select id, kind, 2 * n as twice, n + 1 as next from (select id, 'film' as kind, length(title) as n from content.film_work
        union all select film_id, 'rating', score::int from ugc.ratings) q"),
    ("a column of two by a join", "select j.film_id, j.film_id + 1 as next, coalesce(r.score, 0) as score from ugc.ratings r full join ugc.views v using (film_id) as j"),
    ("a total of merged ranges", "select (select sum(upper(r) - lower(r)) from unnest(range_agg(during)) r) as watched from ugc.views"),
    ("names in other alphabets", "select title as \"название\", 'жанр: ' || kind::text as \"жанр\" from content.film_work where title <> 'drop table x; --'"),
];

#[tokio::test(flavor = "multi_thread")]
async fn a_query_that_people_write_passes_every_layer_and_answers() {
    let database = Database::fresh().await;
    database.execute(CINEMA).await;
    let client = database.client().await;
    let schemas = vec!["content".to_owned(), "ugc".to_owned()];
    assert!(QUERIES.len() >= 30);
    for (name, sql) in QUERIES {
        assert_eq!(check(sql, &schemas), [], "{name}");
        assert_eq!(check_plan(&client, sql, &schemas, None).await.unwrap(), [], "{name}");
        let sampled = sample(&client, sql, &SampleLimits::default()).await;
        let sampled = sampled.unwrap_or_else(|error| panic!("{name}: {error}"));
        assert!(!sampled.rows.is_empty(), "{name}");
    }
}
