-- The marts. All columns but the key have a default or may be null: a pipeline fills those its query names.
create schema analytics;

create table analytics.film_dim (
    film_id     uuid primary key,
    title       text,
    description text,
    rating      numeric(3, 1),
    type        text,
    genres      text[],
    directors   text[],
    actors      text[],
    writers     text[],
    updated_at  timestamptz not null default now(),
    modified    timestamptz   -- the film's own stamp: the cursor of film_dim_incremental
);

create table analytics.film_rating_agg (
    film_id      uuid primary key,
    avg_rating   numeric(4, 2),   -- (3, 2) would overflow at 10.00
    rating_count bigint,
    updated_at   timestamptz not null default now(),
    modified     timestamptz      -- the newest rating's stamp: the cursor of film_rating_agg_incremental
);

create table analytics.user_features (
    user_id         uuid primary key,
    rating_count    bigint,
    avg_rating      numeric(4, 2),
    like_count      bigint,
    review_count    bigint,
    view_count      bigint,
    minutes_watched bigint,
    updated_at      timestamptz not null default now()
);

create table analytics.audience_segments (
    user_id    uuid,
    segment    text,
    film_count bigint,
    updated_at timestamptz not null default now(),
    primary key (user_id, segment)
);
