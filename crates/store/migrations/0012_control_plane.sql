-- Configuration that is edited: its version, its limits; runs, audit and requests as people page through them; tokens that end.

alter table etl.etl_pipelines
    add column freshness_limit_seconds bigint check (freshness_limit_seconds > 0);
comment on column etl.etl_pipelines.freshness_limit_seconds is 'how far the target may lag behind its source before somebody should look; null means no limit';

-- Whoever changes the configuration, in psql too, makes a new version of it.
create function etl.raise_version() returns trigger language plpgsql as $$
begin
    new.version := old.version + 1;
    new.updated_at := clock_timestamp();
    return new;
end $$;
-- Of these columns only: heartbeats and commits, which are many, do not even ask.
create trigger raise_version before update of
    name, description, tags, type, source_type, source_connection, source_table, source_query, target_table, mode,
    batch_size, enabled, schedule_interval, incremental_key, incremental_id_key, capture, change_key, watch,
    late_window_seconds, delete_limit, reject_limit, freshness_limit_seconds, read, first_load, python_task
    on etl.etl_pipelines
    for each row when (
        (old.name, old.description, old.tags, old.type, old.source_type, old.source_connection, old.source_table,
         old.source_query, old.target_table, old.mode, old.batch_size, old.enabled, old.schedule_interval,
         old.incremental_key, old.incremental_id_key, old.capture, old.change_key, old.watch, old.late_window_seconds,
         old.delete_limit, old.reject_limit, old.freshness_limit_seconds, old.read, old.first_load, old.python_task)
        is distinct from
        (new.name, new.description, new.tags, new.type, new.source_type, new.source_connection, new.source_table,
         new.source_query, new.target_table, new.mode, new.batch_size, new.enabled, new.schedule_interval,
         new.incremental_key, new.incremental_id_key, new.capture, new.change_key, new.watch, new.late_window_seconds,
         new.delete_limit, new.reject_limit, new.freshness_limit_seconds, new.read, new.first_load, new.python_task))
    execute function etl.raise_version();
create trigger raise_version before update on etl.etl_targets
    for each row when (
        (old.connection, old.key, old.touch_column, old.create_if_missing, old.mapping, old.settings)
        is distinct from
        (new.connection, new.key, new.touch_column, new.create_if_missing, new.mapping, new.settings))
    execute function etl.raise_version();

-- A plan is part of its pipeline's configuration. Statement by statement: a plan is replaced as a whole.
create function etl.raise_version_of_plan() returns trigger language plpgsql as $$
begin
    update etl.etl_pipelines set version = version + 1, updated_at = clock_timestamp()
     where id in (select distinct pipeline_id from changed);
    return null;
end $$;
create trigger raise_version_of_new after insert on etl.etl_pipeline_tasks
    referencing new table as changed for each statement execute function etl.raise_version_of_plan();
create trigger raise_version after update on etl.etl_pipeline_tasks
    referencing new table as changed for each statement execute function etl.raise_version_of_plan();
create trigger raise_version_of_gone after delete on etl.etl_pipeline_tasks
    referencing old table as changed for each statement execute function etl.raise_version_of_plan();

create index etl_runs_all on etl.etl_runs (requested_at desc, id desc);
create index etl_runs_finished on etl.etl_runs (finished_at);

alter table etl.etl_tokens add column expires_at timestamptz;

-- Runners hear of requests, and whoever waits for an answer of that.
alter table etl.etl_requests
    add column requested_by text,
    add column runner text;
create function etl.tell_request() returns trigger language plpgsql as $$
begin
    perform pg_notify('vitrina', new.id || case when new.status in ('REQUESTED', 'RUNNING') then ' REQUEST' else ' ANSWER' end);
    return null;
end $$;
create trigger tell_request after insert on etl.etl_requests for each row execute function etl.tell_request();
create trigger tell_answer after update of status on etl.etl_requests
    for each row when (old.status is distinct from new.status and new.status <> 'RUNNING') execute function etl.tell_request();
