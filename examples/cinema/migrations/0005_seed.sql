-- The generator: `select cinema.seed(films, ratings)`. Everything is a function of a row's number, never of
-- random() or the clock, so that two databases seeded alike are equal, and calling it twice changes nothing.
-- A larger call extends a smaller one.

-- A choice from 0 to size - 1, made by seven hexadecimal digits of a hash.
create function cinema.pick(hash text, place integer, size integer) returns integer
    language sql immutable parallel safe
    return ('x' || substr(hash, place, 7))::bit(28)::integer % size;

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
create function cinema.title(hash text) returns text
    language sql immutable parallel safe
    return case when cinema.pick(hash, 1, 10) = 0 then
        (array['Тайна', 'Легенда', 'Возвращение', 'Хроника', 'Песня', 'Тень', 'Память', 'Последний день', 'Сказание',
               'Музыка'])[1 + cinema.pick(hash, 5, 10)] || ' ' ||
        (array['старого', 'зимнего', 'северного', 'забытого', 'далёкого', 'ночного', 'белого', 'тихого', 'весеннего',
               'чужого', 'золотого', 'последнего'])[1 + cinema.pick(hash, 9, 12)] || ' ' ||
        (array['города', 'моря', 'леса', 'дома', 'острова', 'сада', 'берега', 'поезда', 'театра', 'неба', 'человека',
               'лета'])[1 + cinema.pick(hash, 13, 12)]
    else
        (array['The', 'Tales of the', 'Under the', 'Waiting for the', 'When the', 'Where the', 'Winter of the',
               'Without a', 'Yesterday''s', 'Summer of the', 'Thirteen Days of the', 'To the', 'Two for the',
               'Voyage to the', 'Twilight of the'])[1 + cinema.pick(hash, 5, 15)] || ' ' ||
        (array['Silent', 'Golden', 'Broken', 'Hidden', 'Crimson', 'Distant', 'Burning', 'Frozen', 'Lonely', 'Electric',
               'Paper', 'Velvet', 'Hollow', 'Restless', 'Invisible', 'Borrowed', 'Iron', 'Quiet', 'Second', 'Wandering',
               'Midnight', 'Northern', 'Forgotten', 'Emerald', 'Last'])[1 + cinema.pick(hash, 9, 25)] || ' ' ||
        (array['Garden', 'River', 'Empire', 'Lighthouse', 'Orchestra', 'Letter', 'Machine', 'Island', 'Witness', 'Harbour',
               'Mountain', 'Stranger', 'Circus', 'Crown', 'Station', 'Mirror', 'Voyage', 'Detective', 'Kingdom', 'Planet',
               'Summer', 'Promise', 'Thief', 'Comet', 'Castle', 'Sailor', 'Winter', 'Signal', 'Painter', 'Bridge']
        )[1 + cinema.pick(hash, 13, 30)]
    end;

create function cinema.person_name(hash text) returns text
    language sql immutable parallel safe
    return case when cinema.pick(hash, 1, 8) = 0 then
        (array['Анна', 'Иван', 'Мария', 'Пётр', 'Ольга', 'Сергей', 'Елена', 'Павел', 'Нина', 'Юрий'])[1 + cinema.pick(hash, 5, 10)] || ' ' ||
        (array['Ким', 'Шевченко', 'Левитан', 'Дорошенко', 'Гончар', 'Черных', 'Мельник', 'Седых', 'Бондарь', 'Живаго'])[1 + cinema.pick(hash, 9, 10)]
    else
        (array['Ada', 'Boris', 'Clara', 'David', 'Emma', 'Felix', 'Greta', 'Hugo', 'Ines', 'James', 'Karen', 'Louis', 'Maya',
               'Noah', 'Olivia', 'Peter', 'Rosa', 'Samuel', 'Tara', 'Victor'])[1 + cinema.pick(hash, 5, 20)] || ' ' ||
        chr(65 + cinema.pick(hash, 13, 26)) || '. ' ||
        (array['Adams', 'Berg', 'Carter', 'Dubois', 'Evans', 'Fischer', 'Garcia', 'Hansen', 'Ito', 'Jensen', 'Keller', 'Lopez',
               'Moreau', 'Novak', 'O''Brien', 'Park', 'Quinn', 'Rossi', 'Singh', 'Tanaka', 'Ueda', 'Vogel', 'Walker',
               'Young', 'Zhang'])[1 + cinema.pick(hash, 9, 25)]
    end;

create function cinema.description(hash text) returns text
    language sql immutable parallel safe
    return case when cinema.pick(hash, 3, 5) > 0 then
        'A story of ' ||
        (array['love and loss', 'two brothers', 'a long journey', 'an old debt', 'a city that never forgets', 'courage',
               'one summer', 'a secret kept too long'])[1 + cinema.pick(hash, 11, 8)] || ', told ' ||
        (array['with humour', 'backwards', 'by those who were there', 'in seven letters', 'without a word',
               'from the sea'])[1 + cinema.pick(hash, 15, 6)] || '.'
    end;

create function cinema.seed_catalogue(films integer) returns void language sql set jit = off as $$
    insert into content.genre (id, name, created, modified)
    select md5('genre:' || name)::uuid, name, '2020-01-01 00:00:00+00', '2020-01-01 00:00:00+00' from cinema.genre_name
    on conflict do nothing;

    insert into content.person (id, name, created, modified)
    select distinct person_id, name, timestamptz '2020-01-01 00:00:00+00', timestamptz '2020-01-01 00:00:00+00'
      from cinema.famous_credit where n <= films
    on conflict do nothing;

    insert into content.person (id, name, created, modified)
    select hash::uuid, cinema.person_name(hash), created, created
      from (select md5('person:' || n::text) as hash from generate_series(1, films / 4 + 40) n offset 0) person,
           lateral (select timestamptz '2020-01-01 00:00:00+00'
                           + make_interval(secs => cinema.pick(hash, 17, 31536000)) as created) stamp
    on conflict do nothing;

    insert into content.film_work (id, title, description, creation_date, rating, type, created, modified)
    select hash::uuid, coalesce(famous.title, cinema.title(hash)), cinema.description(hash),
           case when famous.n is not null then famous.creation_date
                when cinema.pick(hash, 7, 20) > 0 then date '1950-01-01' + cinema.pick(hash, 19, 27000) end,
           case when famous.n is not null then famous.rating
                when cinema.pick(hash, 9, 9) > 0 then (10 + cinema.pick(hash, 21, 90)) / 10.0 end,
           coalesce(famous.type, case cinema.pick(hash, 23, 5) when 0 then 'tv_show' else 'movie' end),
           created,
           created + make_interval(secs => cinema.pick(hash, 25, 31536000))
      from (select n, md5('film:' || n::text) as hash from generate_series(1, films) n offset 0) film
      left join cinema.famous_film famous using (n),
           lateral (select timestamptz '2020-01-01 00:00:00+00'
                           + make_interval(secs => cinema.pick(hash, 17, 126230400)) as created) stamp
    on conflict do nothing;
$$;

-- Links and ratings take half of their id from each end: an md5 for each would cost more than all the rest.
create function cinema.seed_credits(films integer) returns void language sql set jit = off set work_mem = '64MB' as $$
    -- Famous films are action, adventure and sci-fi; the others have one to three genres, five apart in the list.
    insert into content.genre_film_work (id, film_work_id, genre_id, created)
    select (left(film.hash, 16) || left(genre.hash, 16))::uuid, film.hash::uuid, genre.hash::uuid, '2020-01-01 00:00:00+00'
      from (select n, md5('film:' || n::text) as hash from generate_series(1, films) n offset 0) film,
           lateral (select case when film.n <= 24 then slot + slot / 2 * 12
                                else (cinema.pick(film.hash, 13, 18) + slot * 5) % 18 end as n
                      from generate_series(0, case when film.n <= 24 then 2 else cinema.pick(film.hash, 19, 3) end) slot) drawn
      join (select n, md5('genre:' || name) as hash from cinema.genre_name offset 0) genre on genre.n = drawn.n
    on conflict do nothing;

    insert into content.person_film_work (id, film_work_id, person_id, role, created)
    select md5(film_work_id::text || person_id::text || role)::uuid, film_work_id, person_id, role, '2020-01-01 00:00:00+00'
      from cinema.famous_credit where n <= films
    on conflict do nothing;

    -- Slot 0 directs, slot 1 writes, one to four others act; all from the first n / 4 + 40 persons, seven apart.
    insert into content.person_film_work (id, film_work_id, person_id, role, created)
    select (film.half || person.half)::uuid, film.id, person.id,
           case slot when 0 then 'director' when 1 then 'writer' else 'actor' end, '2020-01-01 00:00:00+00'
      from (select n, hash::uuid as id, left(hash, 16) as half, cinema.pick(md5('cast:' || n::text), 1, n / 4 + 40) as first
              from generate_series(25, films) n, md5('film:' || n::text) hash offset 0) film
     cross join lateral generate_series(0, 2 + film.first % 4) slot
      join (select n, hash::uuid as id, left(hash, 16) as half
              from generate_series(1, films / 4 + 40) n, md5('person:' || n::text) hash offset 0) person
        on person.n = 1 + (film.first + slot * 7) % (film.n / 4 + 40)
    on conflict do nothing;
$$;

-- User u rates one film of each band; band a holds the films a² + 1 to (a + 1)². So no user rates a film twice, the
-- number of ratings is exact, and early films get more of them. One film in eleven gets none, one in 101 only tens.
create function cinema.seed_ratings(films integer, ratings integer) returns void language sql
    set jit = off set work_mem = '64MB' as $$
    insert into auth.users (id, login, email, password_hash, created)
    select md5('user:' || n::text)::uuid, 'user' || n::text, 'user' || n::text || '@example.com',
           '!' || md5('nobody knows this password ' || n::text),
           timestamptz '2020-01-01 00:00:00+00' + make_interval(mins => n % 500000)
      from generate_series(0, (ratings - 1) / greatest(1, floor(sqrt(films))::integer)) n
     where films > 0 and ratings > 0
    on conflict do nothing;

    -- r and s are two rounds of a Lehmer generator over the rating's (u, a).
    with vote as (
        select i / bands as u, i % bands as a, ((i / bands)::bigint * 1000003 + i % bands + 1) % 2147483647 * 48271 % 2147483647 as r
          from (select floor(sqrt(films))::integer as bands where films > 0) band, generate_series(0, ratings - 1) i
        offset 0
    ), drawn as (
        select u, a, r, (r # (r >> 13)) % 2147483647 * 69621 % 2147483647 as s from vote offset 0
    ), choice as (
        select u, r, s, a * a + 1 as first, a * a + 1 + (s % (2 * a + 1))::integer as n from drawn offset 0
    )
    insert into ugc.ratings (id, film_id, user_id, rating, created, modified)
    select (viewer.half || film.half)::uuid, film.id, viewer.id,
           case when film.n % 101 = 1 then 10 else least(10, 4 + film.n % 5 + (r >> 7) % 5) end,
           timestamptz '2021-01-01 00:00:00+00' + make_interval(secs => r % 126230400),
           timestamptz '2021-01-01 00:00:00+00'
           + make_interval(secs => r % 126230400 + case (s >> 5) % 8 when 0 then s % 31536000 else 0 end)
      from choice
      join (select n, hash::uuid as id, left(hash, 16) as half
              from generate_series(1, films) n, md5('film:' || n::text) hash offset 0) film
        on film.n = choice.n - case when choice.n % 11 = 0 and choice.n > greatest(24, first) then 1 else 0 end
      join (select n, hash::uuid as id, left(hash, 16) as half
              from generate_series(0, (ratings - 1) / greatest(1, floor(sqrt(films))::integer)) n, md5('user:' || n::text) hash
            offset 0) viewer
        on viewer.n = choice.u
    on conflict do nothing;
$$;

-- A tenth of those who rate also press a button, one in forty writes a review, a quarter is seen watching.
create function cinema.seed_reactions() returns void language sql set jit = off as $$
    insert into ugc.likes (id, film_id, user_id, liked, created, modified)
    select id, film_id, user_id, rating >= 6, created, created
      from ugc.ratings where extract(epoch from created)::bigint % 10 = 0
    on conflict do nothing;

    insert into ugc.reviews (id, film_id, user_id, body, created, modified)
    select id, film_id, user_id,
           case when rating >= 9 then 'A masterpiece.' when rating >= 7 then 'Worth an evening.'
                when rating >= 5 then 'Так себе.' else 'I left before the end.' end,
           created, created
      from ugc.ratings where extract(epoch from created)::bigint % 40 = 1
    on conflict do nothing;

    insert into ugc.views (id, film_id, user_id, minutes, created, modified)
    select id, film_id, user_id, 5 + extract(epoch from created)::bigint % 127, created, created
      from ugc.ratings where extract(epoch from created)::bigint % 4 = 2
    on conflict do nothing;
$$;

-- Drops keys and indexes of a table that is still empty, and returns the statements that bring them back: sorting
-- them once at the end takes a tenth of the time. A table with rows keeps them, and `on conflict` works as usual.
create function cinema.lay_bare(bare regclass) returns text[] language plpgsql as $$
declare
    filled  boolean;
    rebuild text[];
    command text;
begin
    execute format('select exists (select from %s)', bare) into filled;
    if filled then
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

-- Runs a step while the tables it fills are bare, if they are empty; then brings keys and indexes back.
create function cinema.fill(tables regclass[], step text) returns void language plpgsql
    set maintenance_work_mem = '256MB' as $$
declare
    rebuild text[] := '{}';
    command text;
    filled  regclass;
begin
    foreach filled in array tables loop
        rebuild := rebuild || cinema.lay_bare(filled);
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
    perform cinema.fill('{content.genre_film_work, content.person_film_work}',
                        format('select cinema.seed_catalogue(%1$s); select cinema.seed_credits(%1$s)', films));
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
