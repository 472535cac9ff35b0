-- What users say and do. film_id and user_id carry no foreign keys: the services may live in separate databases.
create schema ugc;

create table ugc.ratings (
    id       uuid primary key default gen_random_uuid(),
    film_id  uuid not null,
    user_id  uuid not null,
    rating   smallint not null check (rating between 1 and 10),
    created  timestamptz not null default now(),
    modified timestamptz not null default now(),
    unique (film_id, user_id)
);

create table ugc.likes (
    id       uuid primary key default gen_random_uuid(),
    film_id  uuid not null,
    user_id  uuid not null,
    liked    boolean not null,
    created  timestamptz not null default now(),
    modified timestamptz not null default now(),
    unique (film_id, user_id)
);

create table ugc.reviews (
    id       uuid primary key default gen_random_uuid(),
    film_id  uuid not null,
    user_id  uuid not null,
    body     text not null,
    created  timestamptz not null default now(),
    modified timestamptz not null default now()
);

create table ugc.views (
    id       uuid primary key default gen_random_uuid(),
    film_id  uuid not null,
    user_id  uuid not null,
    minutes  integer not null check (minutes >= 0),
    created  timestamptz not null default now(),
    modified timestamptz not null default now()
);

create index ratings_cursor on ugc.ratings (modified, id);
create index likes_cursor on ugc.likes (modified, id);
create index reviews_cursor on ugc.reviews (modified, id);
create index views_cursor on ugc.views (modified, id);
create index ratings_user on ugc.ratings (user_id);
create index likes_user on ugc.likes (user_id);
create index reviews_user on ugc.reviews (user_id);
create index views_user on ugc.views (user_id);

create trigger touch before update on ugc.ratings
    for each row when (new.modified = old.modified) execute function cinema.touch_modified();
create trigger touch before update on ugc.likes
    for each row when (new.modified = old.modified) execute function cinema.touch_modified();
create trigger touch before update on ugc.reviews
    for each row when (new.modified = old.modified) execute function cinema.touch_modified();
create trigger touch before update on ugc.views
    for each row when (new.modified = old.modified) execute function cinema.touch_modified();
