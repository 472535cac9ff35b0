-- New links are followed by when they came, film by film: movies_index watches both tables.
create index genre_film_work_cursor on content.genre_film_work (created, film_work_id);
create index person_film_work_cursor on content.person_film_work (created, film_work_id);
