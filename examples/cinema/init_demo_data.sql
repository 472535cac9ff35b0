-- The demo's data and its two pipelines, into a database that both migrations have prepared:
--     psql -U cinema -d cinema < sql/init_demo_data.sql
-- Repeatable: what is there stays as it is. A cinema that already has films keeps its size.

do $$
begin
    if not exists (select from content.film_work) then
        perform cinema.seed(5000, 50000);
    end if;
end
$$;

insert into etl.etl_targets (name, connection, key, touch_column) values
    ('analytics.film_dim', 'marts', '{film_id}', 'updated_at'),
    ('analytics.film_rating_agg', 'marts', '{film_id}', 'updated_at')
on conflict do nothing;

insert into etl.etl_pipelines
    (id, name, description, type, source_type, source_connection, source_query, target_table, mode, batch_size)
values
    ('11111111-1111-1111-1111-111111111111', 'film_dim_full',
     'One row a film, with its genres and the names of those who made it.',
     'SQL', 'postgres', 'cinema', $query$
select f.id as film_id, f.title, f.description, f.rating, f.type,
       genre.genres, credit.directors, credit.actors, credit.writers
  from content.film_work f
 cross join lateral (
       select coalesce(array_agg(g.name order by g.name), '{}') as genres
         from content.genre_film_work link
         join content.genre g on g.id = link.genre_id
        where link.film_work_id = f.id) genre
 cross join lateral (
       select coalesce(array_agg(p.name order by p.name) filter (where link.role = 'director'), '{}') as directors,
              coalesce(array_agg(p.name order by p.name) filter (where link.role = 'actor'), '{}') as actors,
              coalesce(array_agg(p.name order by p.name) filter (where link.role = 'writer'), '{}') as writers
         from content.person_film_work link
         join content.person p on p.id = link.person_id
        where link.film_work_id = f.id) credit
$query$, 'analytics.film_dim', 'full', 1000),
    ('22222222-2222-2222-2222-222222222222', 'film_rating_agg_full',
     'What users think of each film they have rated.',
     'SQL', 'postgres', 'cinema', $query$
select film_id, round(avg(rating), 2)::numeric(4, 2) as avg_rating, count(*) as rating_count
  from ugc.ratings
 group by film_id
$query$, 'analytics.film_rating_agg', 'full', 1000)
on conflict do nothing;
