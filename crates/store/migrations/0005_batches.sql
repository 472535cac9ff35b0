-- Loads, rejects and backfills: how a load is read and first written, how many rows of a run may be
-- refused, runs over a list of keys, and the outcome of a batch as one document.

alter table etl.etl_pipelines
    add column read text not null default 'auto' check (read in ('auto', 'keyset', 'stream')),
    add column first_load text not null default 'direct' check (first_load in ('direct', 'staged')),
    add column reject_limit bigint not null default 0 check (reject_limit >= 0);
comment on column etl.etl_pipelines.reject_limit is 'how many rejects a run may add that nobody has acknowledged';

alter table etl.etl_runs add column keys jsonb check (jsonb_typeof(keys) = 'array');
comment on column etl.etl_runs.keys is 'a backfill: only these keys are read again, and the checkpoint stays';

alter table etl.etl_rejects add column load_id uuid;
comment on column etl.etl_rejects.load_id is 'the load that met it last: a load that ends without meeting it closes it';

-- Keeps, renews and closes rejects, in the order of their keys. Answers how many of this run nobody has acknowledged.
create function etl.keep_rejects(p_pipeline uuid, p_run uuid, p_outcome jsonb) returns bigint
    language plpgsql set search_path = pg_catalog, pg_temp as $$
declare
    v_load uuid := (p_outcome ->> 'load')::uuid;
begin
    if jsonb_array_length(p_outcome -> 'closed') > 0 then
        delete from etl.etl_rejects
         where pipeline_id = p_pipeline
           and key_hash in (select md5(closed.key::text) from jsonb_array_elements(p_outcome -> 'closed') closed(key));
    end if;
    if jsonb_array_length(p_outcome -> 'rejects') > 0 then
        insert into etl.etl_rejects as old (pipeline_id, key, run_id, code, message, row, load_id)
        select distinct on (md5(r.key::text)) p_pipeline, r.key, p_run, r.code, r.message, r.row, v_load
          from jsonb_to_recordset(p_outcome -> 'rejects') as r(key jsonb, code text, message text, row jsonb)
         order by md5(r.key::text)
        on conflict (pipeline_id, key_hash) do update
           set run_id = excluded.run_id, code = excluded.code, message = excluded.message, row = excluded.row,
               load_id = excluded.load_id, rejected_at = excluded.rejected_at,
               -- Someone has accepted that reason, and no other.
               acknowledged_at = case when old.code = excluded.code then old.acknowledged_at end;
    end if;
    if (p_outcome ->> 'close_others')::boolean then
        delete from etl.etl_rejects where pipeline_id = p_pipeline and load_id is distinct from v_load;
    end if;
    if jsonb_array_length(p_outcome -> 'rejects') = 0 then
        return 0;
    end if;
    return (select count(*) from etl.etl_rejects
             where pipeline_id = p_pipeline and run_id = p_run and acknowledged_at is null);
end $$;
revoke all on function etl.keep_rejects(uuid, uuid, jsonb) from public;

-- As before, with one document for what became of the rows. A run that adds more rejects than its limit is
-- refused (VT004), and with it the batch.
drop function etl.commit_batch(uuid, uuid, bigint, bigint, jsonb, jsonb, jsonb);
create function etl.commit_batch(
    p_pipeline uuid, p_owner uuid, p_token bigint, p_from_version bigint, p_checkpoint jsonb, p_outcome jsonb,
    out new_version bigint, out interrupted boolean
) language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
declare
    v_run uuid;
    v_status text;
    v_cancel boolean;
begin
    update etl.etl_pipelines
       set lease_until = clock_timestamp() + lease_length, stalls = 0, releases = 0
     where id = p_pipeline and owner = p_owner and lease_token = p_token and status in ('RUNNING', 'PAUSE_REQUESTED')
    returning run_id, status into v_run, v_status;
    if not found then
        raise exception 'lease lost' using errcode = 'VT001';
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
revoke all on function etl.commit_batch(uuid, uuid, bigint, bigint, jsonb, jsonb) from public;
