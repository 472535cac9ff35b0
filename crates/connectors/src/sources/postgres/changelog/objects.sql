-- What Vitrina keeps in a source whose changes are logged. The log grows with every change of a logged table and
-- shrinks when all who follow it have read on. Functions here run with the rights of their owner whenever an application writes,
-- so the schema belongs to that owner alone: whoever could replace what they touch would run code of his own with those rights.
create table if not exists vitrina_log.change_log (
    source text not null,
    key jsonb not null,
    -- A long key in an index would make the application's own insert fail.
    kid bigint not null,
    op "char" not null,
    xid xid8 not null default pg_current_xact_id()
);
create index if not exists change_log_xid on vitrina_log.change_log (source, xid);
create index if not exists change_log_kid on vitrina_log.change_log (source, kid, xid);
create index if not exists change_log_truncates on vitrina_log.change_log (source, xid) where op = 'T';

create table if not exists vitrina_log.change_sources (
    source text primary key,
    relation oid not null,
    key text[] not null,
    function text not null,
    installed_at timestamptz not null default now()
);

create table if not exists vitrina_log.change_consumers (
    installation uuid not null,
    pipeline uuid not null,
    snapshot text not null,
    receipt bigint not null default 1,
    dropped boolean not null default false,
    updated_at timestamptz not null default clock_timestamp(),
    primary key (installation, pipeline)
);

create table if not exists vitrina_log.change_pruned (
    only_row boolean primary key default true check (only_row),
    below xid8 not null default '0',
    pruned_at timestamptz not null default clock_timestamp()
);
insert into vitrina_log.change_pruned default values on conflict do nothing;

-- Deletes what every consumer has read, at most once a minute and some rows at a time. One that has been silent
-- for too long is not waited for any more.
create or replace function vitrina_log.prune_changes(p_max_age interval) returns void
    language plpgsql security definer set search_path = pg_catalog, pg_temp set standard_conforming_strings = on as $$
declare
    v_below xid8;
begin
    perform from vitrina_log.change_pruned where pruned_at < clock_timestamp() - interval '1 minute' for update skip locked;
    if not found then
        return;
    end if;
    update vitrina_log.change_consumers set dropped = true
     where not dropped and updated_at < clock_timestamp() - greatest(p_max_age, interval '1 hour');
    select pg_snapshot_xmin(snapshot::pg_snapshot) into v_below from vitrina_log.change_consumers where not dropped
     order by 1 limit 1;
    v_below := coalesce(v_below, pg_snapshot_xmin(pg_current_snapshot()));
    update vitrina_log.change_pruned set below = greatest(below, v_below), pruned_at = clock_timestamp();
    delete from vitrina_log.change_log where ctid = any (array(
        select l.ctid from vitrina_log.change_sources s
         cross join lateral (select ctid from vitrina_log.change_log where source = s.source and xid < v_below limit 50000) l));
end $$;

-- A consumer tells how far it has come: it will never ask for what was visible in this snapshot. Answers a number
-- that only grows: a source that has gone back in time gives itself away.
create or replace function vitrina_log.consume_changes(
    p_installation uuid, p_pipeline uuid, p_snapshot text, p_max_age interval) returns bigint
    language plpgsql security definer set search_path = pg_catalog, pg_temp set standard_conforming_strings = on as $$
declare
    v_receipt bigint;
begin
    -- Whoever may read the log may say this: what is no snapshot, or one of times to come, would be in the way of all others.
    if pg_snapshot_xmax(p_snapshot::pg_snapshot) > pg_snapshot_xmax(pg_current_snapshot()) then
        raise 'snapshot % is of times to come', p_snapshot using errcode = 'invalid_parameter_value';
    end if;
    -- Numbers of another server: this database was restored from a dump of that one.
    if (select below from vitrina_log.change_pruned) > pg_snapshot_xmax(pg_current_snapshot()) then
        delete from vitrina_log.change_log;
        delete from vitrina_log.change_consumers;
        update vitrina_log.change_pruned set below = '0';
    end if;
    select receipt into v_receipt from vitrina_log.change_consumers
     where installation = p_installation and pipeline = p_pipeline and snapshot = p_snapshot and not dropped
       and updated_at > clock_timestamp() - interval '1 minute';
    if not found then
        insert into vitrina_log.change_consumers as c (installation, pipeline, snapshot)
        values (p_installation, p_pipeline, p_snapshot)
        on conflict (installation, pipeline) do update
           set snapshot = excluded.snapshot, receipt = c.receipt + 1, dropped = false, updated_at = clock_timestamp()
        returning receipt into v_receipt;
    end if;
    perform vitrina_log.prune_changes(p_max_age);
    return v_receipt;
end $$;

-- A consumer that is no more is not waited for. Answers how many others still are.
create or replace function vitrina_log.forget_changes(p_installation uuid, p_pipeline uuid) returns bigint
    language sql security definer set search_path = pg_catalog, pg_temp set standard_conforming_strings = on as $$
    delete from vitrina_log.change_consumers where installation = p_installation and pipeline = p_pipeline;
    select count(*) from vitrina_log.change_consumers where not dropped;
$$;
revoke all on function vitrina_log.prune_changes(interval), vitrina_log.consume_changes(uuid, uuid, text, interval),
    vitrina_log.forget_changes(uuid, uuid) from public;
