-- The generator: `select cinema.seed(films, ratings)`. Everything is a function of a row's number, never of
-- random() or the clock, so that two databases seeded alike are equal, and calling it twice changes nothing.
-- A larger call extends a smaller one.

-- Two rounds of a Lehmer generator for each number, as 62 bits: plain arithmetic, so that all servers agree.
create function cinema.throw(first integer, last integer) returns table (n integer, dice bigint)
    language sql immutable parallel safe as $$
    select n, round.dice << 31 | (round.dice # (round.dice >> 13)) * 69621 % 2147483647
      from (select n, (n::bigint * 1000003 + 1) % 2147483647 * 48271 % 2147483647 as dice
              from generate_series(first, last) n offset 0) round
$$;

-- A choice from 0 to size - 1, made by the bits from a place on.
create function cinema.pick(dice bigint, place integer, size integer) returns integer
    language sql immutable parallel safe
    return (dice >> place) % size;

create view cinema.famous_film (n, title, type, creation_date, rating, directors, writers, actors) as values
    (1, 'Star Wars: Episode IV - A New Hope', 'movie', date '1977-05-25', 8.6, array['George Lucas'], array['George Lucas'], array['Mark Hamill', 'Harrison Ford', 'Carrie Fisher']),
    (2, 'Star Wars: Episode V - The Empire Strikes Back', 'movie', '1980-05-21', 8.7, '{Irvin Kershner}', '{Leigh Brackett,Lawrence Kasdan}', '{Mark Hamill,Harrison Ford,Carrie Fisher}'),
    (3, 'Star Wars: Episode VI - Return of the Jedi', 'movie', '1983-05-25', 8.3, '{Richard Marquand}', '{Lawrence Kasdan,George Lucas}', '{Mark Hamill,Harrison Ford,Carrie Fisher}'),
    (4, 'Star Trek: The Motion Picture', 'movie', '1979-12-07', 6.4, '{Robert Wise}', '{Harold Livingston}', '{William Shatner,Leonard Nimoy,DeForest Kelley}'),
    (5, 'Star Trek II: The Wrath of Khan', 'movie', '1982-06-04', 7.7, '{Nicholas Meyer}', '{Jack B. Sowards}', '{William Shatner,Leonard Nimoy,Ricardo Montalban}'),
    (6, 'Star Trek III: The Search for Spock', 'movie', '1984-06-01', 6.6, '{Leonard Nimoy}', '{Harve Bennett}', '{William Shatner,DeForest Kelley,Christopher Lloyd}'),
    (7, 'Star Trek IV: The Voyage Home', 'movie', '1986-11-26', 7.3, '{Leonard Nimoy}', '{Harve Bennett,Nicholas Meyer}', '{William Shatner,Leonard Nimoy,DeForest Kelley}'),
    (8, 'Star Wars: Episode I - The Phantom Menace', 'movie', '1999-05-19', 6.5, '{George Lucas}', '{George Lucas}', '{Liam Neeson,Ewan McGregor,Natalie Portman}'),
    (9, 'Star Wars: Episode II - Attack of the Clones', 'movie', '2002-05-16', 6.6, '{George Lucas}', '{George Lucas,Jonathan Hales}', '{Hayden Christensen,Natalie Portman,Ewan McGregor}'),
    (10, 'Star Wars: Episode III - Revenge of the Sith', 'movie', '2005-05-19', 7.6, '{George Lucas}', '{George Lucas}', '{Hayden Christensen,Natalie Portman,Ewan McGregor}'),
    (11, 'Star Wars: Episode VII - The Force Awakens', 'movie', '2015-12-18', 7.8, '{J.J. Abrams}', '{Lawrence Kasdan,J.J. Abrams,Michael Arndt}', '{Daisy Ridley,John Boyega,Oscar Isaac}'),
    (12, 'Star Wars: Episode VIII - The Last Jedi', 'movie', '2017-12-15', 6.9, '{Rian Johnson}', '{Rian Johnson}', '{Daisy Ridley,John Boyega,Mark Hamill}'),
    (13, 'Star Wars: Episode IX - The Rise of Skywalker', 'movie', '2019-12-20', 6.4, '{J.J. Abrams}', '{Chris Terrio,J.J. Abrams}', '{Daisy Ridley,John Boyega,Oscar Isaac}'),
    (14, 'Star Wars: The Clone Wars', 'tv_show', '2008-10-03', 8.4, '{Dave Filoni}', '{George Lucas}', '{Matt Lanter,Ashley Eckstein}'),
    (15, 'Star Trek: The Next Generation', 'tv_show', '1987-09-28', 8.7, '{Cliff Bole}', '{Gene Roddenberry}', '{Patrick Stewart,Jonathan Frakes,Brent Spiner}'),
    (16, 'Star Trek V: The Final Frontier', 'movie', '1989-06-09', 5.5, '{William Shatner}', '{David Loughery}', '{William Shatner,Leonard Nimoy,DeForest Kelley}'),
    (17, 'Star Trek VI: The Undiscovered Country', 'movie', '1991-12-06', 7.2, '{Nicholas Meyer}', '{Nicholas Meyer,Denny Martin Flinn}', '{William Shatner,Leonard Nimoy,Christopher Plummer}'),
    (18, 'Star Trek: Generations', 'movie', '1994-11-18', 6.6, '{David Carson}', '{Ronald D. Moore,Brannon Braga}', '{Patrick Stewart,William Shatner,Malcolm McDowell}'),
    (19, 'Star Trek: First Contact', 'movie', '1996-11-22', 7.6, '{Jonathan Frakes}', '{Brannon Braga,Ronald D. Moore}', '{Patrick Stewart,Jonathan Frakes,Brent Spiner}'),
    (20, 'Star Trek: Insurrection', 'movie', '1998-12-11', 6.4, '{Jonathan Frakes}', '{Michael Piller}', '{Patrick Stewart,Jonathan Frakes,Brent Spiner}'),
    (21, 'Star Trek: Nemesis', 'movie', '2002-12-13', 6.4, '{Stuart Baird}', '{John Logan}', '{Patrick Stewart,Brent Spiner,Tom Hardy}'),
    (22, 'Star Trek', 'movie', '2009-05-08', 7.9, '{J.J. Abrams}', '{Roberto Orci,Alex Kurtzman}', '{Chris Pine,Zachary Quinto,Zoe Saldana}'),
    (23, 'Star Trek Into Darkness', 'movie', '2013-05-16', 7.7, '{J.J. Abrams}', '{Roberto Orci,Alex Kurtzman,Damon Lindelof}', '{Chris Pine,Zachary Quinto,Benedict Cumberbatch}'),
    (24, 'Star Trek Beyond', 'movie', '2016-07-22', 7.0, '{Justin Lin}', '{Simon Pegg,Doug Jung}', '{Chris Pine,Zachary Quinto,Idris Elba}');

-- The credits of the films above, one name a row.
create view cinema.famous_credit as
    select n, md5('film:' || n::text)::uuid as film_work_id, role, name, md5('person:' || name)::uuid as person_id
      from cinema.famous_film,
           lateral (select 'director' as role, unnest(directors) as name
                    union all select 'writer', unnest(writers)
                    union all select 'actor', unnest(actors)) credit;

create view cinema.genre_name (n, name) as
    select n - 1, name
      from unnest(array['Action', 'Adventure', 'Animation', 'Comedy', 'Crime', 'Documentary', 'Drama', 'Family', 'Fantasy',
                        'History', 'Horror', 'Music', 'Mystery', 'Romance', 'Sci-Fi', 'Thriller', 'War', 'Western'])
           with ordinality as genre (name, n);

-- No opening sorts before "Star …": `order by title limit 5` shows the films everybody knows.
create function cinema.title(dice bigint) returns text
    language sql immutable parallel safe
    return case when cinema.pick(dice, 0, 10) = 0 then
        (array['Тайна', 'Легенда', 'Возвращение', 'Хроника', 'Песня', 'Тень', 'Память', 'Последний день', 'Сказание',
               'Музыка'])[1 + cinema.pick(dice, 5, 10)] || ' ' ||
        (array['старого', 'зимнего', 'северного', 'забытого', 'далёкого', 'ночного', 'белого', 'тихого', 'весеннего',
               'чужого', 'золотого', 'последнего'])[1 + cinema.pick(dice, 11, 12)] || ' ' ||
        (array['города', 'моря', 'леса', 'дома', 'острова', 'сада', 'берега', 'поезда', 'театра', 'неба', 'человека',
               'лета'])[1 + cinema.pick(dice, 17, 12)]
    else
        (array['The', 'Tales of the', 'Under the', 'Waiting for the', 'When the', 'Where the', 'Winter of the',
               'Without a', 'Yesterday''s', 'Summer of the', 'Thirteen Days of the', 'To the', 'Two for the',
               'Voyage to the', 'Twilight of the'])[1 + cinema.pick(dice, 5, 15)] || ' ' ||
        (array['Silent', 'Golden', 'Broken', 'Hidden', 'Crimson', 'Distant', 'Burning', 'Frozen', 'Lonely', 'Electric',
               'Paper', 'Velvet', 'Hollow', 'Restless', 'Invisible', 'Borrowed', 'Iron', 'Quiet', 'Second', 'Wandering',
               'Midnight', 'Northern', 'Forgotten', 'Emerald', 'Last'])[1 + cinema.pick(dice, 11, 25)] || ' ' ||
        (array['Garden', 'River', 'Empire', 'Lighthouse', 'Orchestra', 'Letter', 'Machine', 'Island', 'Witness', 'Harbour',
               'Mountain', 'Stranger', 'Circus', 'Crown', 'Station', 'Mirror', 'Voyage', 'Detective', 'Kingdom', 'Planet',
               'Summer', 'Promise', 'Thief', 'Comet', 'Castle', 'Sailor', 'Winter', 'Signal', 'Painter', 'Bridge']
        )[1 + cinema.pick(dice, 17, 30)]
    end;

create function cinema.person_name(dice bigint) returns text
    language sql immutable parallel safe
    return case when cinema.pick(dice, 0, 8) = 0 then
        (array['Анна', 'Иван', 'Мария', 'Пётр', 'Ольга', 'Сергей', 'Елена', 'Павел', 'Нина', 'Юрий'])[1 + cinema.pick(dice, 5, 10)] || ' ' ||
        (array['Ким', 'Шевченко', 'Левитан', 'Дорошенко', 'Гончар', 'Черных', 'Мельник', 'Седых', 'Бондарь', 'Живаго'])[1 + cinema.pick(dice, 11, 10)]
    else
        (array['Ada', 'Boris', 'Clara', 'David', 'Emma', 'Felix', 'Greta', 'Hugo', 'Ines', 'James', 'Karen', 'Louis', 'Maya',
               'Noah', 'Olivia', 'Peter', 'Rosa', 'Samuel', 'Tara', 'Victor'])[1 + cinema.pick(dice, 5, 20)] || ' ' ||
        chr(65 + cinema.pick(dice, 17, 26)) || '. ' ||
        (array['Adams', 'Berg', 'Carter', 'Dubois', 'Evans', 'Fischer', 'Garcia', 'Hansen', 'Ito', 'Jensen', 'Keller', 'Lopez',
               'Moreau', 'Novak', 'O''Brien', 'Park', 'Quinn', 'Rossi', 'Singh', 'Tanaka', 'Ueda', 'Vogel', 'Walker',
               'Young', 'Zhang'])[1 + cinema.pick(dice, 11, 25)]
    end;

create function cinema.description(dice bigint) returns text
    language sql immutable parallel safe
    return case when cinema.pick(dice, 20, 5) > 0 then
        'A story of ' ||
        (array['love and loss', 'two brothers', 'a long journey', 'an old debt', 'a city that never forgets', 'courage',
               'one summer', 'a secret kept too long'])[1 + cinema.pick(dice, 25, 8)] || ', told ' ||
        (array['with humour', 'backwards', 'by those who were there', 'in seven letters', 'without a word',
               'from the sea'])[1 + cinema.pick(dice, 31, 6)] || '.'
    end;

-- Films, links and ratings come in the order of an id, which makes the sorts for their indexes cheap. The id of a link
-- or rating is half of an md5 and half a number: an md5 of its own would cost more than all the rest. What a row
-- refers to is looked up by number in an array of ids, which costs less than a join.
create function cinema.seed_catalogue(films integer) returns void language sql
    set jit = off set work_mem = '64MB' as $$
    insert into content.genre (id, name, created, modified)
    select md5('genre:' || name)::uuid, name, '2020-01-01 00:00:00+00', '2020-01-01 00:00:00+00' from cinema.genre_name
    on conflict do nothing;

    insert into content.person (id, name, created, modified)
    select distinct person_id, name, timestamptz '2020-01-01 00:00:00+00', timestamptz '2020-01-01 00:00:00+00'
      from cinema.famous_credit where n <= films
    on conflict do nothing;

    insert into content.person (id, name, created, modified)
    select md5('person:' || n::text)::uuid, cinema.person_name(dice), created, created
      from cinema.throw(1, films / 4 + 40), to_timestamp(1577836800 + cinema.pick(dice, 27, 31536000)) created
    on conflict do nothing;

    with film as materialized (
        select n, hash::uuid as id, left(hash, 16) as half, dice
          from (select n, dice, md5('film:' || n::text) as hash from cinema.throw(1, films) offset 0) thrown
         order by id
    ), genre as (
        -- Famous films are action, adventure and sci-fi; the others have one to three genres, five apart in the list.
        insert into content.genre_film_work (id, film_work_id, genre_id, created)
        select (half || to_hex((1::bigint << 63) + slot))::uuid, id,
               (array(select md5('genre:' || name)::uuid from cinema.genre_name order by n))
               [1 + case when n <= 24 then slot + slot / 2 * 12 else (cinema.pick(dice, 15, 18) + slot * 5) % 18 end],
               timestamptz '2020-01-01 00:00:00+00'
          from (select *, generate_series(0, case when n <= 24 then 2 else cinema.pick(dice, 21, 3) end) as slot from film) link
        on conflict do nothing
    ), credit as (
        -- Slot 0 directs, slot 1 writes, one to three others act; all from the first n / 4 + 40 persons, seven apart.
        insert into content.person_film_work (id, film_work_id, person_id, role, created)
        select (half || to_hex((1::bigint << 63) + slot))::uuid, id,
               (array(select md5('person:' || n::text)::uuid from generate_series(1, films / 4 + 40) n))
               [1 + (cinema.pick(dice, 5, n / 4 + 40) + slot * 7) % (n / 4 + 40)],
               case slot when 0 then 'director' when 1 then 'writer' else 'actor' end,
               timestamptz '2020-01-01 00:00:00+00'
          from (select *, generate_series(0, 2 + cinema.pick(dice, 3, 3)) as slot from film where n > 24) link
        on conflict do nothing
    )
    insert into content.film_work (id, title, description, creation_date, rating, type, created, modified)
    select id, coalesce(famous.title, cinema.title(dice)), cinema.description(dice),
           case when famous.n is not null then famous.creation_date
                when cinema.pick(dice, 7, 20) > 0 then date '1950-01-01' + cinema.pick(dice, 23, 27000) end,
           case when famous.n is not null then famous.rating
                when cinema.pick(dice, 13, 9) > 0 then (10 + cinema.pick(dice, 29, 90)) * 0.1 end,
           coalesce(famous.type, case cinema.pick(dice, 33, 5) when 0 then 'tv_show' else 'movie' end),
           to_timestamp(created), to_timestamp(created + cinema.pick(dice, 9, 31536000))
      from (select *, 1577836800 + cinema.pick(dice, 27, 126230400) as created from film) film
      left join cinema.famous_film famous using (n)
    on conflict do nothing;

    insert into content.person_film_work (id, film_work_id, person_id, role, created)
    select md5(film_work_id::text || person_id::text || role)::uuid, film_work_id, person_id, role, '2020-01-01 00:00:00+00'
      from cinema.famous_credit where n <= films
    on conflict do nothing;
$$;

-- Users and their ratings have ids and stamps that rise with their numbers, as where rows come in one by one.
create function cinema.user_key(n integer) returns text
    language sql immutable parallel safe
    return lpad(to_hex(n), 8, '0') || substr(md5('user:' || n::text), 9);

-- User u rates one film of each band; band a holds the films a² + 1 to (a + 1)². So no user rates a film twice, the
-- number of ratings is exact, and early films get more of them. One film in eleven gets none, one in 101 only tens.
create function cinema.seed_ratings(films integer, ratings integer) returns void language sql
    set jit = off set work_mem = '64MB' as $$
    insert into auth.users (id, login, email, password_hash, created)
    select cinema.user_key(n)::uuid, 'user' || n::text, 'user' || n::text || '@example.com',
           '!' || md5('nobody knows this password ' || n::text),
           timestamptz '2020-01-01 00:00:00+00' + make_interval(mins => n % 500000)
      from generate_series(0, (ratings - 1) / greatest(1, floor(sqrt(films))::integer)) n
     where films > 0 and ratings > 0
    on conflict do nothing;

    -- r and s are two rounds of a Lehmer generator over the rating's (u, a).
    with viewer as (
        select u, key::uuid as id, left(key, 16) as half, least(bands, ratings - u * bands) as votes
          from (select floor(sqrt(films))::integer as bands where films > 0 and ratings > 0) band,
               generate_series(0, (ratings - 1) / bands) u, cinema.user_key(u) key
         order by u
    ), vote as (
        select u, id, half, generate_series(0, votes - 1) as a from viewer
    ), thrown as (
        select id, half, a, 1609459200 + u % 3200 * 40000 + a * 40 as modified,
               (u::bigint * 1000003 + a + 1) % 2147483647 * 48271 % 2147483647 as r
          from vote offset 0
    ), thrown_again as (
        select id, half, a, modified, r, (r # (r >> 13)) % 2147483647 * 69621 % 2147483647 as s from thrown offset 0
    ), drawn as (
        select id, half, a, modified, r, s, a * a + 1 + (s % (2 * a + 1))::integer as n from thrown_again offset 0
    ), choice as (
        select id, half, a, modified, r, s, case when n % 11 = 0 and n > greatest(24, a * a + 1) then n - 1 else n end as n
          from drawn offset 0
    )
    insert into ugc.ratings (id, film_id, user_id, rating, created, modified)
    select (half || to_hex((1::bigint << 63) + a))::uuid,
           (array(select md5('film:' || n::text)::uuid from generate_series(1, films) n))[n], id,
           case when n % 101 = 1 then 10 else least(10, 4 + n % 5 + (r >> 7) % 5) end,
           to_timestamp(modified - case (s >> 5) % 16 when 0 then s % 31536000 else 0 end), to_timestamp(modified)
      from choice
    on conflict do nothing;
$$;

-- One rating in sixteen was changed later. Whoever came back for that is seen watching, every other one presses a
-- button, and one in five writes a review.
create function cinema.seed_reactions() returns void language sql set jit = off set work_mem = '64MB' as $$
    with changed as materialized (
        select *, date_part('epoch', created)::integer as draw from ugc.ratings where modified > created
    ), button as (
        insert into ugc.likes (id, film_id, user_id, liked, created, modified)
        select id, film_id, user_id, rating >= 6, created, created from changed where draw % 2 = 0
        on conflict do nothing
    ), word as (
        insert into ugc.reviews (id, film_id, user_id, body, created, modified)
        select id, film_id, user_id,
               case when rating >= 9 then 'A masterpiece.' when rating >= 7 then 'Worth an evening.'
                    when rating >= 5 then 'Так себе.' else 'I left before the end.' end,
               created, created
          from changed where draw % 5 = 1
        on conflict do nothing
    )
    insert into ugc.views (id, film_id, user_id, minutes, created, modified)
    select id, film_id, user_id, 5 + draw % 127, created, created from changed
    on conflict do nothing;
$$;

-- Drops keys and indexes of a table that is still empty, and returns the statements that bring them back: sorting
-- them once at the end takes a tenth of the time. A table with rows keeps them, and `on conflict` works as usual;
-- so does a table that others refer to.
create function cinema.lay_bare(bare regclass) returns text[] language plpgsql as $$
declare
    filled  boolean;
    rebuild text[];
    command text;
begin
    execute format('select exists (select from %s)', bare) into filled;
    if filled or exists (select from pg_constraint where confrelid = bare) then
        return '{}';
    end if;
    select array_agg(again order by rank), string_agg(undo, '; ' order by rank) into rebuild, command
      from (select contype = 'f' as rank, format('alter table %s drop constraint %I', bare, conname) as undo,
                   format('alter table %s add constraint %I %s', bare, conname, pg_get_constraintdef(oid)) as again
              from pg_constraint where conrelid = bare and contype in ('p', 'u', 'f')
            union all
            select false, format('drop index %s', indexrelid::regclass), pg_get_indexdef(indexrelid)
              from pg_index where indrelid = bare
               and not exists (select from pg_constraint where conindid = indexrelid and conrelid = bare)) part;
    execute command;
    return rebuild;
end
$$;

-- Runs a step while the tables it fills are bare, if they are empty; then brings keys and indexes back, in reverse:
-- a table comes after those that refer to it.
create function cinema.fill(tables regclass[], step text) returns void language plpgsql
    set maintenance_work_mem = '256MB' as $$
declare
    rebuild text[] := '{}';
    command text;
    filled  regclass;
begin
    foreach filled in array tables loop
        rebuild := cinema.lay_bare(filled) || rebuild;
    end loop;
    execute step;
    foreach command in array rebuild loop
        execute command;
    end loop;
end
$$;

-- The two services know nothing of each other, and may be seeded at the same time on two connections.
create function cinema.seed_content(films integer) returns void language plpgsql as $$
begin
    perform cinema.fill('{content.genre_film_work, content.person_film_work, content.film_work, content.person}',
                        format('select cinema.seed_catalogue(%s)', films));
    analyze content.film_work, content.genre, content.person, content.genre_film_work, content.person_film_work;
end
$$;

create function cinema.seed_ugc(films integer, ratings integer) returns void language plpgsql as $$
begin
    perform cinema.fill('{ugc.ratings, ugc.likes, ugc.reviews, ugc.views}',
                        format('select cinema.seed_ratings(%s, %s); select cinema.seed_reactions()', films, ratings));
    analyze ugc.ratings, ugc.likes, ugc.reviews, ugc.views, auth.users;
end
$$;

create function cinema.seed(films integer, ratings integer) returns void language plpgsql as $$
begin
    if films < 0 or ratings < 0 then
        raise exception 'cannot seed % films and % ratings', films, ratings using hint = 'both are numbers of rows, 0 or more';
    end if;
    perform cinema.seed_content(films);
    perform cinema.seed_ugc(films, ratings);
end
$$;
