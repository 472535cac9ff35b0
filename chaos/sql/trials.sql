-- Tables that nobody but one trial writes to: it knows at any time what its mart must hold.
create table content.comparison (id int primary key, amount numeric, weight float8, seen_at timestamptz, title text);
create table analytics.comparison (like content.comparison including all);
insert into content.comparison
    select n, case when n % 4 > 0 then n % 3 end, case when n % 5 > 0 then n % 2 end, timestamptz '2026-01-01' + n * interval '1 hour', nullif('Item ' || n % 50, 'Item 0')
      from generate_series(1, 600) n;

create table content.delete_limit (id int primary key, title text not null);
create table analytics.delete_limit (like content.delete_limit including all);

create table content.widened_numeric (id int primary key, amount numeric(6, 2) not null);
create table analytics.widened_numeric (like content.widened_numeric including all);
insert into content.widened_numeric select n, n from generate_series(1, 50) n;

create table content.failed_load (id int primary key, title text, n bigint not null);
create table analytics.failed_load (like content.failed_load including all);
alter table analytics.failed_load alter column title set not null;
insert into content.failed_load select n, 'Title ' || n, n from generate_series(1, 2000) n;

create table content.retyped_column (id int primary key, n bigint not null);
create table analytics.retyped_column (like content.retyped_column including all);
insert into content.retyped_column select n, n from generate_series(1, 400) n;

create table analytics.second_writer (like analytics.film including all);
create table analytics.restored_source (id int primary key, title text not null, modified timestamptz not null);

create table content.replaced_mart (id int primary key, title text not null, modified timestamptz not null);
create table analytics.replaced_mart (like content.replaced_mart including all);
insert into content.replaced_mart select n, 'Title ' || n, timestamptz '2026-01-01' + n * interval '1 minute' from generate_series(1, 400) n;
