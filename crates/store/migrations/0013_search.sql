-- How rows become documents, where a target is a search index.
alter table etl.etl_targets add column document jsonb not null default '{}' check (jsonb_typeof(document) = 'object');
comment on column etl.etl_targets.document is 'rename: column to field; omit: columns; partial: several pipelines write to the index; take_over: what has its name may be replaced';

drop trigger raise_version on etl.etl_targets;
create trigger raise_version before update on etl.etl_targets
    for each row when (
        (old.connection, old.key, old.touch_column, old.create_if_missing, old.mapping, old.settings, old.document)
        is distinct from
        (new.connection, new.key, new.touch_column, new.create_if_missing, new.mapping, new.settings, new.document))
    execute function etl.raise_version();

-- A run that has readers see the index they saw before the last load, and reads nothing.
alter table etl.etl_runs add column rollback boolean not null default false;
