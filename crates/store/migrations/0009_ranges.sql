-- Backfills over a range of the cursor, which may be long: a run notes how far it has come.
alter table etl.etl_runs add column backfill_range jsonb
    check (jsonb_typeof(backfill_range) = 'object' and (backfill_range is null or keys is null));
comment on column etl.etl_runs.backfill_range is 'a backfill: only rows with from <= cursor < to are read again, at being how far it has come';

-- As before, and how far a backfill has come goes with its batch.
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
           batches = batches + 1,
           backfill_range = case when p_outcome ? 'backfilled_to'
                                 then jsonb_set(backfill_range, '{at}', p_outcome -> 'backfilled_to') else backfill_range end
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
