-- Tables that nobody but one trial writes to: it knows at any time what its mart must hold.
create table content.vault (id int primary key, amount numeric, weight float8, seen_at timestamptz, title text);
create table analytics.vault (like content.vault including all);
insert into content.vault
    select n, case when n % 4 > 0 then n % 3 end, case when n % 5 > 0 then n % 2 end, timestamptz '2026-01-01' + n * interval '1 hour', nullif('Item ' || n % 50, 'Item 0')
      from generate_series(1, 600) n;

create table content.stock (id int primary key, title text not null);
create table analytics.stock (like content.stock including all);

create table content.price (id int primary key, amount numeric(6, 2) not null);
create table analytics.price (like content.price including all);
insert into content.price select n, n from generate_series(1, 50) n;

create table content.stack (id int primary key, title text, n bigint not null);
create table analytics.stack (like content.stack including all);
alter table analytics.stack alter column title set not null;
insert into content.stack select n, 'Title ' || n, n from generate_series(1, 2000) n;

create table content.typed (id int primary key, n bigint not null);
create table analytics.typed (like content.typed including all);
insert into content.typed select n, n from generate_series(1, 400) n;

create table analytics.second (like analytics.film including all);
create table analytics.archive (id int primary key, title text not null, modified timestamptz not null);

create table content.swap (id int primary key, title text not null, modified timestamptz not null);
create table analytics.swap (like content.swap including all);
insert into content.swap select n, 'Title ' || n, timestamptz '2026-01-01' + n * interval '1 minute' from generate_series(1, 400) n;
