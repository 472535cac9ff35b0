-- What polling could miss is written down where it happens, in the transaction that does it: whatever is rolled
-- back leaves no trace. Nothing here changes or locks what Vitrina looks at. The sink's search_path is empty,
-- so every name is qualified.
create table chaos.violations (seq bigint generated always as identity primary key, at timestamptz not null default clock_timestamp(),
    rule text not null, pipeline text, detail text not null);
create table chaos.history (seq bigint generated always as identity primary key, at timestamptz not null default clock_timestamp(),
    pipeline text not null, line text not null);
create index on chaos.history (pipeline, seq);
create table chaos.mart_log (seq bigint generated always as identity primary key, mart text not null, id int not null,
    op text not null, version bigint not null, xid xid8 not null default pg_current_xact_id());
create index on chaos.mart_log (mart, id, version);
create table chaos.batch_log (batch bigint primary key, xid xid8 not null default pg_current_xact_id(), pipeline text not null,
    token bigint not null, inserted bigint not null, updated bigint not null, deleted bigint not null);
create index on chaos.batch_log (xid); create index on chaos.batch_log (pipeline, token);
create table chaos.closings (seq bigint generated always as identity primary key, pipeline text not null, run uuid not null,
    status text not null, error_code text, error text, is_pass boolean not null default true);
create index on chaos.closings (pipeline, status);
create table chaos.takeovers (seq bigint generated always as identity primary key, at timestamptz not null default clock_timestamp(),
    pipeline text not null, runner text not null, seconds_late float not null, suspect boolean not null);

create function chaos.blame(p_rule text, p_pipeline text, p_detail text) returns void language sql as $$
    insert into chaos.violations (rule, pipeline, detail) values (p_rule, p_pipeline, p_detail) $$;

-- Rows of marts: versions never go back, also not by way of a delete, and nothing vanishes that is still there.
create function chaos.see_mart() returns trigger language plpgsql as $$
declare
    mart text := tg_table_name;
    image jsonb := to_jsonb(case when tg_op = 'DELETE' then old else new end);
    row_id int := (image ->> tg_argv[0])::int;
    row_version bigint := (image ->> 'version')::bigint;
    highest bigint := (select max(l.version) from chaos.mart_log l where l.mart = tg_table_name and l.id = row_id);
begin
    if tg_op = 'DELETE' then
        if exists (select from chaos.source s where s.mart = tg_table_name and s.id = row_id and s.hidden_version <= row_version) then
            perform chaos.blame('a row vanished that its source still has', mart, format('row %s in version %s', row_id, row_version));
        end if;
    elsif row_version < highest then
        perform chaos.blame('a row went back', mart, format('row %s from version %s to %s', row_id, highest, row_version));
    end if;
    insert into chaos.mart_log (mart, id, op, version) values (mart, row_id, left(tg_op, 1), row_version);
    return null;
end $$;
create function chaos.see_truncate() returns trigger language plpgsql as $$
begin
    perform chaos.blame('a mart was emptied', tg_table_name, 'by truncate');
    return null;
end $$;

-- The same for targets elsewhere, from one copy to the next.
create function chaos.see_elsewhere(p_mart text, p_rows jsonb, p_opened_at timestamptz, p_successes bigint) returns void language plpgsql as $$
begin
    perform chaos.blame('a row went back', p_mart, format('row %s from version %s to %s', o.id, o.version, (n.row ->> 1)::bigint))
       from jsonb_array_elements(p_rows) n (row) join chaos.elsewhere o on o.mart = p_mart and o.id = (n.row ->> 0)::int
      where (n.row ->> 1)::bigint < o.version;
    delete from chaos.elsewhere where mart = p_mart;
    insert into chaos.elsewhere select p_mart, (n.row ->> 0)::int, (n.row ->> 1)::bigint, n.row ->> 2 from jsonb_array_elements(p_rows) n (row);
    insert into chaos.elsewhere_progress values (p_mart, p_opened_at, p_successes)
    on conflict (mart) do update set opened_at = excluded.opened_at, successes = excluded.successes;
end $$;

-- Batches: entered by the owner alone, under tokens that never go back.
create function chaos.see_batch() returns trigger language plpgsql as $$
declare
    name text;
    lease bigint;
    newest bigint;
begin
    select p.name, p.lease_token into name, lease from etl.etl_pipelines p where p.id = new.pipeline_id;
    select max(b.token) into newest from chaos.batch_log b where b.pipeline = name;
    if new.token <> lease then
        perform chaos.blame('a batch was committed by someone who is not the owner', name,
                            format('batch %s with token %s, the lease has %s', new.id, new.token, lease));
    end if;
    if new.token < newest then
        perform chaos.blame('a batch came after one with a newer token', name,
                            format('batch %s with token %s after %s', new.id, new.token, newest));
    end if;
    insert into chaos.batch_log (batch, pipeline, token, inserted, updated, deleted)
    values (new.id, name, new.token, new.rows_inserted, new.rows_updated, new.rows_deleted);
    return null;
end $$;

-- Pipelines: tokens only grow, nobody takes what somebody else still holds.
create function chaos.see_pipeline() returns trigger language plpgsql as $$
declare
    before text := format('%s token %s owner %s', old.status, old.lease_token, left(old.owner::text, 8));
    after text := format('%s token %s owner %s', new.status, new.lease_token, left(new.owner::text, 8));
    runner text;
begin
    insert into chaos.history (pipeline, line)
    values (new.name, format('%s -> %s, run %s, stalls %s, releases %s, enabled %s', before, after, right(new.run_id::text, 6), new.stalls, new.releases, new.enabled));
    if new.lease_token < old.lease_token then
        perform chaos.blame('a lease token went back', new.name, before || ' -> ' || after);
    end if;
    if old.owner is null or old.owner = new.owner then
        return null;
    end if;
    select a.runner into runner from etl.etl_attempts a where a.run_id = old.run_id and a.token = old.lease_token order by a.id desc limit 1;
    if new.owner is null then
        if runner <> current_setting('chaos.runner', true) then
            perform chaos.blame('a run was ended by someone who is not its owner', new.name,
                                format('%s -> %s, owned by %s, by %s', before, after, runner, current_setting('chaos.runner', true)));
        end if;
        return null;
    end if;
    if new.lease_token <= old.lease_token then
        perform chaos.blame('the owner changed without a new token', new.name, before || ' -> ' || after);
    end if;
    if old.lease_until >= clock_timestamp() then
        perform chaos.blame('a live lease was taken', new.name, format('%s -> %s, %s before its end', before, after, old.lease_until - clock_timestamp()));
    end if;
    insert into chaos.takeovers (pipeline, runner, seconds_late, suspect)
    values (new.name, coalesce(runner, '?'), extract(epoch from clock_timestamp() - old.lease_until),
            new.stalls >= 2 and new.status <> 'PAUSE_REQUESTED');
    return null;
end $$;

-- Runs: closed once, and as a success only when the pass is over.
create function chaos.see_run() returns trigger language plpgsql as $$
declare
    pipeline text := (select p.name from etl.etl_pipelines p where p.id = new.pipeline_id);
begin
    if old.finished_at is not null then
        perform chaos.blame('a closed run changed', pipeline, format('run %s from %s (%s, %s rows) to %s (%s, %s rows)', new.id,
            old.status, old.finished_at, old.rows_read, new.status, new.finished_at, new.rows_read));
    elsif new.finished_at is not null then
        insert into chaos.closings (pipeline, run, status, error_code, error, is_pass)
        values (pipeline, new.id, new.status, new.error_code, new.error, new.keys is null and new.backfill_range is null);
        insert into chaos.history (pipeline, line) values (pipeline, format('run %s closed: %s %s', right(new.id::text, 6), new.status, new.error_code));
        -- Keys and ranges are written again without a word on how far the pass has come: a paused one stays in its middle.
        if new.status = 'SUCCESS' and new.keys is null and new.backfill_range is null and exists (select from etl.etl_state s where s.pipeline_id = new.pipeline_id and s.checkpoint #> '{position,pass}' is not null) then
            perform chaos.blame('a run succeeded in the middle of its pass', pipeline, format('run %s', new.id));
        end if;
    end if;
    return null;
end $$;

-- Where a runner can be held: whoever has the lock of a point exclusively stops the next session that gets there.
create function chaos.pause_here() returns trigger language plpgsql as $$
begin
    perform pg_advisory_xact_lock_shared(4711, tg_argv[0]::int);
    return case when tg_level = 'ROW' then new end;
end $$;

do $$
declare
    mart record;
begin
    for mart in select * from (values ('film', 'id'), ('film_rating', 'film_id'), ('film_cast', 'id'), ('shelf', 'id'), ('actor', 'id'), ('actor_full', 'id')) m (name, key) loop
        execute format('create trigger chaos after insert or update or delete on analytics.%I for each row execute function chaos.see_mart(%L)', mart.name, mart.key);
        execute format('create trigger chaos_truncate after truncate on analytics.%I execute function chaos.see_truncate()', mart.name);
        execute format('create trigger chaos_pause before insert or update or delete on analytics.%I execute function chaos.pause_here(1)', mart.name);
    end loop;
end $$;
create trigger chaos_pause before update on etl.etl_runs for each row when (old.finished_at is null and new.finished_at is not null)
    execute function chaos.pause_here(2);
create trigger chaos after insert on etl.etl_batches for each row execute function chaos.see_batch();
create trigger chaos after update on etl.etl_pipelines for each row
    when ((old.status, old.owner, old.lease_token, old.run_id, old.enabled) is distinct from (new.status, new.owner, new.lease_token, new.run_id, new.enabled))
    execute function chaos.see_pipeline();
create trigger chaos after update on etl.etl_runs for each row execute function chaos.see_run();
