-- When a pipeline runs next by itself, and runners that are asked to stop.

alter table etl.etl_pipelines
    add column next_run_at timestamptz,
    add column schedule_error text check (length(schedule_error) <= 1000);
comment on column etl.etl_pipelines.next_run_at is 'set by runners; null until one has looked at the schedule, and while the pipeline is disabled';
comment on column etl.etl_pipelines.schedule_error is 'why schedule_interval says nothing';
create index etl_pipelines_due on etl.etl_pipelines (coalesce(next_run_at, '-infinity'))
    where enabled and schedule_interval is not null and schedule_error is null;

-- Whoever changes a schedule, in psql too, has it looked at anew. What a disabled pipeline missed is not made up for.
create function etl.reset_schedule() returns trigger language plpgsql as $$
begin
    new.next_run_at := null;
    new.schedule_error := null;
    perform pg_notify('vitrina', new.id || ' SCHEDULE');
    return new;
end $$;
create trigger reset_schedule before update of schedule_interval, enabled on etl.etl_pipelines
    for each row when (old.schedule_interval is distinct from new.schedule_interval
                       or (old.enabled <> new.enabled and new.schedule_interval is not null))
    execute function etl.reset_schedule();
create trigger reset_schedule_of_new before insert on etl.etl_pipelines
    for each row when (new.schedule_interval is not null) execute function etl.reset_schedule();

alter table etl.etl_runners
    add column drain_requested boolean not null default false,
    add column taken_over bigint not null default 0;
comment on column etl.etl_runners.drain_requested is 'the runner shall hand its pipelines back and stop';
comment on column etl.etl_runners.taken_over is 'pipelines that others left behind, since it started';
create function etl.tell_drain() returns trigger language plpgsql as $$
begin
    perform pg_notify('vitrina', 'DRAIN');
    return null;
end $$;
create trigger tell_drain after update of drain_requested on etl.etl_runners
    for each row when (new.drain_requested and not old.drain_requested) execute function etl.tell_drain();
