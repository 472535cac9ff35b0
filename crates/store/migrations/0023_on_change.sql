-- What becomes of a checkpoint whose configuration has changed, answered in advance.
alter table etl.etl_pipelines
    add column on_change text not null default 'ask' check (on_change in ('ask', 'keep', 'reset'));
comment on column etl.etl_pipelines.on_change is 'what an incremental run does with a checkpoint of another configuration: ask a person, keep it, or reset it and read everything again';
create trigger raise_version_of_on_change before update of on_change on etl.etl_pipelines
    for each row when (old.on_change is distinct from new.on_change) execute function etl.raise_version();
