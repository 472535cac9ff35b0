-- What names dirty rows: the columns of the mart that changes are named by, and further tables to watch.
alter table etl.etl_pipelines
    add column change_key text[] not null default '{}',
    add column watch jsonb not null default '[]' check (jsonb_typeof(watch) = 'array');
comment on column etl.etl_pipelines.change_key is 'columns of the mart by which changes are named; empty means the target''s key';
