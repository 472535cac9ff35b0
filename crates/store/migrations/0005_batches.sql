-- A row for every batch, the rows that were refused, and the one function by which a mart's transaction
-- moves the checkpoint.

create table etl.etl_batches (
    id bigint generated always as identity primary key,
    run_id uuid not null references etl.etl_runs on delete cascade,
    pipeline_id uuid not null,
    token bigint not null,
    committed_at timestamptz not null default clock_timestamp(),
    rows_read bigint not null,
    rows_inserted bigint not null,
    rows_updated bigint not null,
    rows_unchanged bigint not null,
    rows_deleted bigint not null,
    rows_rejected bigint not null,
    bytes bigint not null,
    read_ms bigint not null,
    transform_ms bigint not null,
    write_ms bigint not null
);
create index etl_batches_run on etl.etl_batches (run_id, id);

create table etl.etl_rejects (
    pipeline_id uuid not null references etl.etl_pipelines on delete cascade,
    -- A key may be longer than an index allows: its hash is what is unique.
    key_hash text generated always as (md5(key::text)) stored,
    key jsonb not null,
    run_id uuid not null,
    code text not null,
    message text not null,
    -- For people to look at; a replay reads the source again.
    row jsonb not null,
    rejected_at timestamptz not null default clock_timestamp(),
    acknowledged_at timestamptz,
    load_id uuid,
    primary key (pipeline_id, key_hash)
);
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

-- Called last in the transaction that wrote the mart. Checks the fence, moves the checkpoint by
-- compare-and-set, keeps the figures, the rejects and how far a backfill has come, and returns whether
-- someone asked for a pause or a cancel. What completed passes established is kept whenever it changes.
-- A run that adds more rejects than its limit is refused (VT004), and with it the batch.
-- Security definer: a mart's login needs no other right in this schema. The token is the fence, not
-- the clock: a runner that was slow but not replaced loses nothing.
-- Renews the lease only when that has become due, and so leaves the pipeline's row alone: every version
-- of a row that a long transaction at the same server may still see makes the next commit dearer.
-- Locks in the order of every statement of this schema: pipeline, run, state, batches, rejects by key.
create function etl.commit_batch(
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
revoke all on function etl.commit_batch(uuid, uuid, bigint, bigint, jsonb, jsonb) from public;
