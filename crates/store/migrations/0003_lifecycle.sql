-- The rules that hold whoever writes: which status may follow which, who hears of it, and the one
-- function by which a mart's transaction moves the checkpoint.

create function etl.check_transition() returns trigger language plpgsql as $$
begin
    if tg_op = 'INSERT' then
        if new.status = 'IDLE' then return new; end if;
        raise exception 'a pipeline begins IDLE, not %', new.status using errcode = 'VT003';
    end if;
    if (old.status, new.status) in (
        ('IDLE', 'RUN_REQUESTED'), ('IDLE', 'PAUSED'),
        ('RUN_REQUESTED', 'RUNNING'), ('RUN_REQUESTED', 'PAUSED'), ('RUN_REQUESTED', 'IDLE'),
        ('RUNNING', 'PAUSE_REQUESTED'), ('RUNNING', 'IDLE'), ('RUNNING', 'RUN_REQUESTED'), ('RUNNING', 'FAILED'),
        ('PAUSE_REQUESTED', 'PAUSED'), ('PAUSE_REQUESTED', 'IDLE'), ('PAUSE_REQUESTED', 'FAILED'),
        ('PAUSE_REQUESTED', 'RUN_REQUESTED'),
        ('PAUSED', 'RUN_REQUESTED'), ('PAUSED', 'IDLE'),
        ('FAILED', 'RUN_REQUESTED'), ('FAILED', 'IDLE')) then
        return new;
    end if;
    raise exception 'a pipeline cannot go from % to %', old.status, new.status using errcode = 'VT003';
end $$;
create trigger check_transition_of_new before insert on etl.etl_pipelines
    for each row execute function etl.check_transition();
create trigger check_transition before update of status on etl.etl_pipelines
    for each row when (old.status is distinct from new.status) execute function etl.check_transition();

-- Runners and pollers wait on channel `vitrina`; the payload is `<pipeline id> <what>`.
create function etl.tell_status() returns trigger language plpgsql as $$
begin
    perform pg_notify('vitrina', new.id || ' ' || new.status);
    return null;
end $$;
create trigger tell_status after update of status on etl.etl_pipelines
    for each row when (old.status is distinct from new.status) execute function etl.tell_status();

create function etl.tell_cancel() returns trigger language plpgsql as $$
begin
    perform pg_notify('vitrina', new.pipeline_id || ' CANCEL');
    return null;
end $$;
create trigger tell_cancel after update of cancel_requested on etl.etl_runs
    for each row when (new.cancel_requested and not old.cancel_requested) execute function etl.tell_cancel();

-- Called last in the transaction that wrote the mart. Checks the fence, moves the checkpoint by
-- compare-and-set, keeps the figures, and tells whether someone asked for a pause or a cancel.
-- Security definer: a mart's login needs no other right in this schema. The token is the fence, not
-- the clock: a runner that was slow but not replaced loses nothing.
-- Locks in the order of every statement of this schema: pipeline, run, state, batches, rejects by key.
create function etl.commit_batch(
    p_pipeline uuid, p_owner uuid, p_token bigint, p_from_version bigint,
    p_checkpoint jsonb, p_figures jsonb, p_rejects jsonb,
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
       set rows_read = rows_read + (p_figures ->> 'read')::bigint,
           rows_written = rows_written + (p_figures ->> 'inserted')::bigint + (p_figures ->> 'updated')::bigint,
           rows_unchanged = rows_unchanged + (p_figures ->> 'unchanged')::bigint,
           rows_deleted = rows_deleted + (p_figures ->> 'deleted')::bigint,
           rows_rejected = rows_rejected + (p_figures ->> 'rejected')::bigint,
           bytes = bytes + (p_figures ->> 'bytes')::bigint,
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
      from jsonb_to_record(p_figures) as f(read bigint, inserted bigint, updated bigint, unchanged bigint, deleted bigint,
                                           rejected bigint, bytes bigint, read_ms bigint, transform_ms bigint, write_ms bigint);

    insert into etl.etl_rejects as old (pipeline_id, key, run_id, code, message, row)
    select p_pipeline, r.key, v_run, r.code, r.message, r.row
      from jsonb_to_recordset(p_rejects) as r(key jsonb, code text, message text, row jsonb)
     order by md5(r.key::text)
    on conflict (pipeline_id, key_hash) do update
       set run_id = excluded.run_id, code = excluded.code, message = excluded.message, row = excluded.row,
           rejected_at = excluded.rejected_at;

    interrupted := v_status = 'PAUSE_REQUESTED' or v_cancel;
end $$;
revoke all on function etl.commit_batch(uuid, uuid, bigint, bigint, jsonb, jsonb, jsonb) from public;

-- Lets a mart's session ask whether it shares the meta-store's database.
create function etl.installation_id() returns uuid
    language sql stable security definer set search_path = pg_catalog, pg_temp
    as 'select id from etl.etl_installation';
