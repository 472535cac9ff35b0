-- How far each pipeline has come (state), what its checkpoints have been, and how fresh its target is.

create table etl.etl_state (
    pipeline_id uuid primary key references etl.etl_pipelines on delete cascade,
    checkpoint jsonb not null default '{}',
    version bigint not null default 0,
    updated_at timestamptz not null default now(),
    last_processed_key text generated always as
        (coalesce(checkpoint #>> '{position,pass,position,0}', checkpoint #>> '{position,done,bound,0}')) stored,
    last_processed_id text generated always as
        (coalesce(checkpoint #>> '{position,pass,position,1}', checkpoint #>> '{position,done,bound,1}')) stored,
    as_of timestamptz
) with (fillfactor = 70);
comment on column etl.etl_state.as_of is 'what the source had committed before is in the target; by the clock of this database';

create function etl.open_state() returns trigger language plpgsql as $$
begin
    insert into etl.etl_state (pipeline_id) values (new.id);
    return null;
end $$;
create trigger open_state after insert on etl.etl_pipelines for each row execute function etl.open_state();

-- A completed pass moves as_of together with the checkpoint, whoever writes that. A pass that has found nothing moves
-- no checkpoint, and sets as_of alone.
create function etl.move_watermark() returns trigger language plpgsql as $$
begin
    new.as_of := (new.checkpoint ->> 'as_of')::timestamptz;
    return new;
end $$;
create trigger move_watermark before update of checkpoint on etl.etl_state
    for each row when (old.checkpoint ->> 'as_of' is distinct from new.checkpoint ->> 'as_of')
    execute function etl.move_watermark();

-- What completed passes had established, whenever that has changed: to look at, and to go back to.
create table etl.etl_checkpoints (
    pipeline_id uuid not null references etl.etl_pipelines on delete cascade,
    -- The version of etl_state that it came with.
    version bigint not null,
    checkpoint jsonb not null,
    -- The run that moved it; null where a person did.
    run_id uuid,
    reason text not null check (reason in ('pass', 'keep', 'reset', 'edit', 'restore', 'mart')),
    created_at timestamptz not null default clock_timestamp(),
    primary key (pipeline_id, version)
);
comment on column etl.etl_checkpoints.reason is 'pass: a pass has ended; mart: the checkpoint beside a mart elsewhere counted; else what was decided';

-- Without the open pass and its opening, which are nothing to go back to. The newest hundred are kept.
create function etl.keep_checkpoint(p_pipeline uuid, p_version bigint, p_checkpoint jsonb, p_run uuid, p_reason text)
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
revoke all on function etl.keep_checkpoint(uuid, bigint, jsonb, uuid, text) from public;
