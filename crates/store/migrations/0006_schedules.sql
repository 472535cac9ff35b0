-- When a pipeline runs by itself, in its own mode and in mode full, and when its target is compared. Whoever changes
-- a schedule, in psql too, has it read anew. What a disabled pipeline missed is not made up for.

create index etl_pipelines_due on etl.etl_pipelines (coalesce(next_run_at, '-infinity'))
    where enabled and schedule_interval is not null and schedule_error is null;
create index etl_pipelines_full_due on etl.etl_pipelines (coalesce(next_full_run_at, '-infinity'))
    where enabled and full_schedule is not null and full_schedule_error is null;
create index etl_pipelines_reconcile_due on etl.etl_pipelines (coalesce(next_reconcile_at, '-infinity'))
    where enabled and reconcile_schedule is not null and reconcile_schedule_error is null;

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

create function etl.reset_reconcile_schedule() returns trigger language plpgsql as $$
begin
    new.next_reconcile_at := null;
    new.reconcile_schedule_error := null;
    perform pg_notify('vitrina', new.id || ' SCHEDULE');
    return new;
end $$;
create trigger reset_reconcile_schedule before update of reconcile_schedule, enabled on etl.etl_pipelines
    for each row when (old.reconcile_schedule is distinct from new.reconcile_schedule
                       or (old.enabled <> new.enabled and new.reconcile_schedule is not null))
    execute function etl.reset_reconcile_schedule();
create trigger reset_reconcile_schedule_of_new before insert on etl.etl_pipelines
    for each row when (new.reconcile_schedule is not null) execute function etl.reset_reconcile_schedule();
