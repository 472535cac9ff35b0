-- A commit renews the lease only when that has become due, and so leaves the pipeline's row alone: every
-- version of a row that a long transaction at the same server may still see makes the next commit dearer.
create or replace function etl.commit_batch(
    p_pipeline uuid, p_owner uuid, p_token bigint, p_from_version bigint, p_checkpoint jsonb, p_outcome jsonb,
    out new_version bigint, out interrupted boolean
) language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
declare
    v_run uuid;
    v_status text;
    v_due boolean;
    v_cancel boolean;
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

    update etl.etl_state
       set checkpoint = p_checkpoint, version = version + 1, updated_at = clock_timestamp()
     where pipeline_id = p_pipeline and version = p_from_version
    returning version into new_version;
    if not found then
        raise exception 'checkpoint moved' using errcode = 'VT002';
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
