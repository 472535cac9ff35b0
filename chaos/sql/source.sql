-- A cinema that many people work on at once, its marts, and the ways they work. The version of a row only grows,
-- and the id of a deleted row is never given out again: so a mart row says exactly how old it is.
create schema content; create schema analytics; create schema chaos;

create table content.film (id int generated always as identity primary key, title text not null, version bigint not null default 1,
    hidden boolean not null default false, hidden_version bigint not null default 0, modified timestamptz not null);
create table content.rating (id int generated always as identity primary key, film_id int not null, score int not null,
    version bigint not null default 1, hidden boolean not null default false, modified timestamptz not null) partition by range (id);
create table content.rating_early partition of content.rating for values from (minvalue) to (200);
create table content.rating_late partition of content.rating for values from (200) to (maxvalue);
create table content.actor (id int generated always as identity primary key, name text not null, version bigint not null default 1);
create table content.role (id int generated always as identity primary key, film_id int not null, name text not null,
    version bigint not null default 1, hidden boolean not null default false, modified timestamptz not null);
create table content.shelf (id int generated always as identity primary key, title text, version bigint not null default 1);
create index on content.role (modified, id); create index on content.role (film_id);
create index on content.film (modified, id); create index on content.rating (modified, id); create index on content.rating (film_id);
comment on column content.film.hidden_version is 'the version in which it was last hidden: a mart row that is older may vanish';
comment on column content.shelf.title is 'NULL is refused by the mart, which keeps the row it had';

insert into content.film (title, modified) select 'Film ' || n, now() from generate_series(1, 150) n;
insert into content.rating (film_id, score, modified) select 1 + n % 150, n % 10, now() from generate_series(1, 300) n;
insert into content.role (film_id, name, modified) select 1 + n % 150, 'Role ' || n, now() from generate_series(1, 200) n;
insert into content.actor (name) select 'Actor ' || n from generate_series(1, 80) n;
insert into content.shelf (title) select 'Shelf ' || n from generate_series(1, 1100) n;

create table analytics.film (id int primary key, title text not null, version bigint not null, modified timestamptz not null);
create table analytics.film_rating (film_id int primary key, ratings bigint not null, score bigint not null, version bigint not null);
create table analytics.film_cast (id int primary key, title text not null, roles text, version bigint not null);
create table analytics.shelf (id int primary key, title text not null, version bigint not null);
create table analytics.actor (id int primary key, name text not null, version bigint not null);
create table analytics.actor_full (id int primary key, name text not null, version bigint not null);

-- Copies of targets that are in no table here, and how far their pipelines said they were before each copy was made.
create table chaos.elsewhere (mart text not null, id int not null, version bigint not null, image text not null, primary key (mart, id));
create table chaos.elsewhere_progress (mart text primary key, opened_at timestamptz, successes bigint not null);

-- What each mart ought to hold, and what it holds. Equal versions must mean equal images. A row that is refused stays in the mart
-- as it was.
create view chaos.source as
    select m.mart, id, version, hidden_version, not hidden as visible, false as refused, title as image
      from content.film, (select name as mart from etl.etl_pipelines where name in ('film', 'film_remote', 'film_index')) m
    union all select 'film_rating', film_id, sum(version)::bigint, 0, true, false,
                     concat_ws(' ', count(*) filter (where not hidden), coalesce(sum(score) filter (where not hidden), 0))
                from content.rating group by film_id
    union all select 'film_cast', f.id, f.version + coalesce(sum(r.version), 0)::bigint, 0, true, false,
                     concat_ws(' ', f.title, string_agg(r.name, ', ' order by r.id) filter (where not r.hidden))
                from content.film f left join content.role r on r.film_id = f.id group by f.id
    union all select 'shelf', id, version, 0, title is not null, title is null, title from content.shelf
    union all select 'actor', id, version, 0, true, false, name from content.actor
    union all select 'actor_full', id, version, 0, true, false, name from content.actor;
create view chaos.mart as
    select 'film' as mart, id, version, title as image from analytics.film
    union all select 'film_rating', film_id, version, concat_ws(' ', ratings, score) from analytics.film_rating
    union all select 'film_cast', id, version, concat_ws(' ', title, roles) from analytics.film_cast
    union all select 'shelf', id, version, title from analytics.shelf
    union all select 'actor', id, version, name from analytics.actor
    union all select 'actor_full', id, version, name from analytics.actor_full
    union all select mart, id, version, image from chaos.elsewhere;

-- Stamps of the server's clock, some of them shared by many rows.
create function chaos.stamp() returns timestamptz language sql volatile as $$
    select case when random() < 0.3 then date_trunc('second', now()) when random() < 0.5 then now() else clock_timestamp() end $$;

-- One thing that someone does. The tables stay small: what is looked at again and again is their change.
create procedure chaos.act() language plpgsql as $$
declare
    film int := (select id from content.film offset floor(random() * 150) limit 1);
    actor int := (select id from content.actor offset floor(random() * 60) limit 1);
begin
    case floor(random() * 13)::int
    when 0 then insert into content.film (title, modified) select 'New', chaos.stamp() where (select count(*) from content.film) < 300;
    when 1, 2 then update content.film set title = 'Film ' || random(), version = version + 1, modified = chaos.stamp() where id = film;
    when 3 then update content.film set hidden = not hidden, version = version + 1,
                       hidden_version = case when hidden then hidden_version else version + 1 end, modified = chaos.stamp() where id = film;
    when 4 then insert into content.rating (film_id, score, modified)
                select film, floor(random() * 10), chaos.stamp() where (select count(*) from content.rating) < 900;
    when 5 then update content.rating set score = floor(random() * 10), version = version + 1, modified = chaos.stamp() where film_id = film;
    when 6 then update content.rating set hidden = not hidden, version = version + 1, modified = chaos.stamp() where film_id = film;
    when 7 then insert into content.actor (name) select 'Actor ' || random() where (select count(*) from content.actor) < 120;
    when 8 then delete from content.actor where id = actor and (select count(*) from content.actor) > 60;
    when 9 then update content.role set name = 'Role ' || random(), version = version + 1, modified = chaos.stamp() where film_id = film;
    when 10 then update content.role set hidden = not hidden, version = version + 1, modified = chaos.stamp() where film_id = film;
    when 11 then update content.shelf set title = case when random() < 0.2 then null else 'Shelf ' || random() end, version = version + 1
                  where id = 1 + floor(random() * 1100)::int;
    else update content.actor set name = 'Actor ' || random(), version = version + 1 where id = actor;
    end case;
end $$;

-- Transactions of one or more acts: read first, savepoints that are undone, some that take seconds, some undone.
create procedure chaos.work(seconds float, breath float) language plpgsql as $$
declare
    until timestamptz := clock_timestamp() + seconds * interval '1 second';
begin
    while clock_timestamp() < until loop
        set local lock_timeout = '100ms';
        if random() < 0.3 then
            perform count(*) from content.film;
            perform pg_sleep(random() * 0.05);
        end if;
        for act in 1 .. 1 + floor(random() * 4) loop
            begin
                call chaos.act();
                if random() < 0.15 then
                    raise exception 'thought better of it';
                end if;
            exception when others then null;
            end;
        end loop;
        if random() < 0.1 then
            perform pg_sleep(random() * 1.5);
        end if;
        if random() < 0.1 then
            rollback;
        else
            commit;
        end if;
        perform pg_sleep(random() * breath);
    end loop;
end $$;
