-- How fresh a target is, and what its runs have to say.

alter table etl.etl_state add column as_of timestamptz;
comment on column etl.etl_state.as_of is 'what the source had committed before is in the target; by the clock of this database';

-- A completed pass moves it together with the checkpoint, whoever writes that. A pass that has found nothing moves
-- no checkpoint, and sets it alone.
create function etl.move_watermark() returns trigger language plpgsql as $$
begin
    new.as_of := (new.checkpoint ->> 'as_of')::timestamptz;
    return new;
end $$;
create trigger move_watermark before update of checkpoint on etl.etl_state
    for each row when (old.checkpoint ->> 'as_of' is distinct from new.checkpoint ->> 'as_of')
    execute function etl.move_watermark();

-- As before, and without the opening of the open pass.
create or replace function etl.keep_checkpoint(p_pipeline uuid, p_version bigint, p_checkpoint jsonb, p_run uuid, p_reason text)
    returns void language plpgsql set search_path = pg_catalog, pg_temp as $$
begin
    insert into etl.etl_checkpoints (pipeline_id, version, checkpoint, run_id, reason)
    values (p_pipeline, p_version,
            p_checkpoint #- '{position,pass}' #- '{opened_at}' #- '{load}' #- '{rows_before}' #- '{edited}' #- '{completed_by}'
                || '{"deleted": 0}',
            p_run, p_reason)
    on conflict (pipeline_id, version) do update
       set checkpoint = excluded.checkpoint, run_id = excluded.run_id, reason = excluded.reason, created_at = excluded.created_at;
    delete from etl.etl_checkpoints
     where pipeline_id = p_pipeline
       and version <= (select version from etl.etl_checkpoints where pipeline_id = p_pipeline order by version desc offset 100 limit 1);
end $$;

-- The caller's trace, as the header `traceparent` of a request for a run told it.
alter table etl.etl_runs add column traceparent text check (length(traceparent) <= 55);

create table etl.etl_logs (
    id bigint generated always as identity primary key,
    run_id uuid not null references etl.etl_runs on delete cascade,
    pipeline_id uuid not null,
    at timestamptz not null default clock_timestamp(),
    level text not null check (level in ('error', 'warn', 'info')),
    message text not null,
    fields jsonb not null default '{}'
);
create index etl_logs_run on etl.etl_logs (run_id, id);
