-- The catalogue service: films, genres, persons and who did what.
create schema content;

-- Stamps a changed row, unless the statement stamped it itself.
create function cinema.touch_modified() returns trigger language plpgsql as $$
begin
    new.modified := now();
    return new;
end
$$;

create table content.film_work (
    id            uuid primary key,
    title         text not null,
    description   text,
    creation_date date,
    rating        numeric(3, 1) check (rating between 0 and 10),
    type          text not null check (type in ('movie', 'tv_show')),
    created       timestamptz not null default now(),
    modified      timestamptz not null default now()
);

create table content.genre (
    id       uuid primary key,
    name     text not null unique,
    created  timestamptz not null default now(),
    modified timestamptz not null default now()
);

create table content.person (
    id       uuid primary key,
    name     text not null,
    created  timestamptz not null default now(),
    modified timestamptz not null default now()
);

create table content.genre_film_work (
    id           uuid primary key default gen_random_uuid(),
    film_work_id uuid not null references content.film_work on delete cascade,
    genre_id     uuid not null references content.genre on delete cascade,
    created      timestamptz not null default now(),
    unique (film_work_id, genre_id)
);

create table content.person_film_work (
    id           uuid primary key default gen_random_uuid(),
    film_work_id uuid not null references content.film_work on delete cascade,
    person_id    uuid not null references content.person on delete cascade,
    role         text not null check (role in ('actor', 'director', 'writer')),
    created      timestamptz not null default now(),
    unique (film_work_id, person_id, role)
);

create index film_work_cursor on content.film_work (modified, id);
create index genre_cursor on content.genre (modified, id);
create index person_cursor on content.person (modified, id);
create index genre_film_work_genre on content.genre_film_work (genre_id);
create index person_film_work_person on content.person_film_work (person_id);

create trigger touch before update on content.film_work
    for each row when (new.modified = old.modified) execute function cinema.touch_modified();
create trigger touch before update on content.genre
    for each row when (new.modified = old.modified) execute function cinema.touch_modified();
create trigger touch before update on content.person
    for each row when (new.modified = old.modified) execute function cinema.touch_modified();
