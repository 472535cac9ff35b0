-- A cinema that twelve people work on at once, and the ways they do it.
create schema content; create schema analytics; create schema storm;
create sequence storm.n;
create table content.film (id int primary key, title text, n bigint not null, hidden boolean not null default false, modified timestamptz not null);
create table content.actor (id int primary key, name text, modified timestamptz not null);
create table content.role (id int primary key, film_id int not null, actor_id int not null, hidden boolean not null default false, modified timestamptz not null);
create table content.rating (id int primary key, film_id int not null, score int not null, hidden boolean not null default false, modified timestamptz not null);
create index on content.film (modified, id); create index on content.actor (modified, id);
create index on content.role (modified, film_id); create index on content.rating (modified, id);
create index on content.role (film_id); create index on content.rating (film_id);
insert into content.film select n, 'Film ' || n, nextval('storm.n'), false, now() from generate_series(1, 100) n;
insert into content.actor select n, 'Actor ' || n, now() from generate_series(1, 20) n;
insert into content.role select n, 1 + n % 100, 1 + n % 20, false, now() from generate_series(1, 200) n;
insert into content.rating select n, 1 + n % 100, n % 10, false, now() from generate_series(1, 300) n;
create sequence storm.id start 1000;

create table analytics.shelf (id int primary key, title text, n bigint, modified timestamptz);
create table analytics.film (id int primary key, title text, n bigint, modified timestamptz);
create table analytics.cast_list (id int primary key, title text, actors text);
create table analytics.film_rating (film_id int primary key, score bigint, ratings bigint);

-- Stamps of the server's clock, some of them shared by many rows; or of clocks that are wrong by seconds.
create function storm.stamp(any_clock boolean) returns timestamptz language sql volatile as $$
    select case when any_clock then clock_timestamp() + (random() * 20 - 10) * interval '1 second'
                when random() < 0.3 then date_trunc('second', now()) when random() < 0.5 then now() else clock_timestamp() end $$;

-- One thing that someone does. What only the change log can see is done only where `any_clock` says so.
create procedure storm.act(any_clock boolean) language plpgsql as $$
declare
    film int := 1 + floor(random() * 110);
    stamp timestamptz := storm.stamp(any_clock);
begin
    case floor(random() * case when any_clock then 14 else 9 end)::int
    when 0 then insert into content.film values (film, 'New', nextval('storm.n'), false, stamp);
    when 1, 2 then update content.film set title = 'Film ' || random(), n = nextval('storm.n'), modified = stamp where id = film;
    when 3 then update content.film set hidden = not hidden, n = nextval('storm.n'), modified = stamp where id = film;
    when 4 then insert into content.rating values (nextval('storm.id'), film, floor(random() * 10), false, stamp);
    when 5 then update content.rating set score = floor(random() * 10), modified = stamp where film_id = film;
    when 6 then update content.rating set hidden = random() < 0.5, modified = stamp where id = 1 + floor(random() * 300);
    when 7 then update content.actor set name = 'Actor ' || random(), modified = stamp where id = 1 + floor(random() * 20);
    when 8 then update content.role set hidden = not hidden, modified = stamp where film_id = film;
    when 9 then delete from content.film where id = film;
    when 10 then update content.rating set film_id = 1 + floor(random() * 110) where id = 1 + floor(random() * 300);
    when 11 then update content.film set id = 1 + floor(random() * 110), n = nextval('storm.n') where id = film;
    when 12 then delete from content.role where id = 1 + floor(random() * 200);
    else insert into content.role values (1 + floor(random() * 200), film, 1 + floor(random() * 20), false, stamp);
    end case;
end $$;

-- Transactions of one or more acts: read first, savepoints that are undone, some that take seconds, some undone.
create procedure storm.work(seconds float, any_clock boolean) language plpgsql as $$
declare
    until timestamptz := clock_timestamp() + seconds * interval '1 second';
begin
    while clock_timestamp() < until loop
        if random() < 0.3 then
            perform count(*) from content.film;
            perform pg_sleep(random() * 0.05);
        end if;
        set local lock_timeout = '100ms';
        for act in 1 .. 1 + floor(random() * 4) loop
            begin
                call storm.act(any_clock);
                if random() < 0.15 then
                    raise exception 'thought better of it';
                end if;
            exception when others then null;
            end;
        end loop;
        if random() < 0.06 then
            perform pg_sleep(random() * 1.5);
        end if;
        if random() < 0.1 then
            rollback;
        else
            commit;
        end if;
        perform pg_sleep(0.005);
    end loop;
end $$;
