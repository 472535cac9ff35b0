-- What the function film_search makes of every film.
create table analytics.film_search (
    id uuid primary key,
    slug text not null,
    search_text text not null,
    modified timestamptz not null
);
comment on table analytics.film_search is 'A slug for the address of a film, and one text of all that it is searched by';
