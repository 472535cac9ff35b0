-- What people decide about checkpoints, and what checkpoints have been.
alter table etl.etl_runs add column checkpoint text check (checkpoint in ('keep', 'reset'));
comment on column etl.etl_runs.checkpoint is 'what becomes of the checkpoint before the run goes on from it; null: it stays';

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

-- Without the open pass, which is nothing to go back to. The newest hundred are kept.
create function etl.keep_checkpoint(p_pipeline uuid, p_version bigint, p_checkpoint jsonb, p_run uuid, p_reason text)
    returns void language plpgsql set search_path = pg_catalog, pg_temp as $$
begin
    insert into etl.etl_checkpoints (pipeline_id, version, checkpoint, run_id, reason)
    values (p_pipeline, p_version,
            p_checkpoint #- '{position,pass}' #- '{load}' #- '{rows_before}' #- '{edited}' #- '{completed_by}' || '{"deleted": 0}',
            p_run, p_reason)
    on conflict (pipeline_id, version) do update
       set checkpoint = excluded.checkpoint, run_id = excluded.run_id, reason = excluded.reason, created_at = excluded.created_at;
    delete from etl.etl_checkpoints
     where pipeline_id = p_pipeline
       and version <= (select version from etl.etl_checkpoints where pipeline_id = p_pipeline order by version desc offset 100 limit 1);
end $$;
revoke all on function etl.keep_checkpoint(uuid, bigint, jsonb, uuid, text) from public;

-- As before, and what completed passes established is kept whenever it changes.
create or replace function etl.commit_batch(
    p_pipeline uuid, p_owner uuid, p_token bigint, p_from_version bigint, p_checkpoint jsonb, p_outcome jsonb,
    out new_version bigint, out interrupted boolean
) language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
declare
    v_run uuid;
    v_status text;
    v_due boolean;
    v_cancel boolean;
    v_done jsonb;
begin
    select run_id, status, stalls > 0 or releases > 0 or lease_until < clock_timestamp() + lease_length / 2
      into v_run, v_status, v_due
      from etl.etl_pipelines
     where id = p_pipeline and owner = p_owner and lease_token = p_token and status in ('RUNNING', 'PAUSE_REQUESTED')
       for no key update;
    if not found then
        raise exception 'lease lost' using errcode = 'VT001';
    end if;
    if v_due then
        update etl.etl_pipelines set lease_until = clock_timestamp() + lease_length, stalls = 0, releases = 0
         where id = p_pipeline;
    end if;

    update etl.etl_runs
       set rows_read = rows_read + (p_outcome ->> 'read')::bigint,
           rows_written = rows_written + (p_outcome ->> 'inserted')::bigint + (p_outcome ->> 'updated')::bigint,
           rows_unchanged = rows_unchanged + (p_outcome ->> 'unchanged')::bigint,
           rows_deleted = rows_deleted + (p_outcome ->> 'deleted')::bigint,
           rows_rejected = rows_rejected + (p_outcome ->> 'rejected')::bigint,
           bytes = bytes + (p_outcome ->> 'bytes')::bigint,
           batches = batches + 1
     where id = v_run
    returning cancel_requested into v_cancel;

    update etl.etl_state s
       set checkpoint = p_checkpoint, version = s.version + 1, updated_at = clock_timestamp()
      from (select checkpoint #> '{position,done}' as done from etl.etl_state where pipeline_id = p_pipeline) before
     where s.pipeline_id = p_pipeline and s.version = p_from_version
    returning s.version, before.done into new_version, v_done;
    if not found then
        raise exception 'checkpoint moved' using errcode = 'VT002';
    end if;
    if v_done is distinct from p_checkpoint #> '{position,done}' then
        perform etl.keep_checkpoint(p_pipeline, new_version, p_checkpoint, v_run, 'pass');
    end if;

    insert into etl.etl_batches (run_id, pipeline_id, token, rows_read, rows_inserted, rows_updated, rows_unchanged,
                                 rows_deleted, rows_rejected, bytes, read_ms, transform_ms, write_ms)
    select v_run, p_pipeline, p_token, f.read, f.inserted, f.updated, f.unchanged,
           f.deleted, f.rejected, f.bytes, f.read_ms, f.transform_ms, f.write_ms
      from jsonb_to_record(p_outcome) as f(read bigint, inserted bigint, updated bigint, unchanged bigint, deleted bigint,
                                           rejected bigint, bytes bigint, read_ms bigint, transform_ms bigint, write_ms bigint);

    if etl.keep_rejects(p_pipeline, v_run, p_outcome) > (p_outcome ->> 'reject_limit')::bigint then
        raise exception 'too many rejects' using errcode = 'VT004';
    end if;

    interrupted := v_status = 'PAUSE_REQUESTED' or v_cancel;
end $$;
