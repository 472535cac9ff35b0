-- A second schedule of a pipeline: at its times a run of mode full is requested, whatever the pipeline's own mode is.

alter table etl.etl_pipelines
    add column full_schedule text,
    add column next_full_run_at timestamptz,
    add column full_schedule_error text check (length(full_schedule_error) <= 1000);
comment on column etl.etl_pipelines.full_schedule is 'when a run of mode full is requested, as schedule_interval says when one of the own mode is';
create index etl_pipelines_full_due on etl.etl_pipelines (coalesce(next_full_run_at, '-infinity'))
    where enabled and full_schedule is not null and full_schedule_error is null;

create function etl.reset_full_schedule() returns trigger language plpgsql as $$
begin
    new.next_full_run_at := null;
    new.full_schedule_error := null;
    perform pg_notify('vitrina', new.id || ' SCHEDULE');
    return new;
end $$;
create trigger reset_full_schedule before update of full_schedule, enabled on etl.etl_pipelines
    for each row when (old.full_schedule is distinct from new.full_schedule
                       or (old.enabled <> new.enabled and new.full_schedule is not null))
    execute function etl.reset_full_schedule();
create trigger reset_full_schedule_of_new before insert on etl.etl_pipelines
    for each row when (new.full_schedule is not null) execute function etl.reset_full_schedule();
create trigger raise_version_of_full_schedule before update of full_schedule on etl.etl_pipelines
    for each row when (old.full_schedule is distinct from new.full_schedule) execute function etl.raise_version();
