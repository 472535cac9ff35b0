-- Runners, the Python tasks that they can run, and requests that only a runner can answer.

create table etl.etl_runners (
    name text primary key,
    version text not null,
    host text not null,
    pid integer not null,
    max_concurrent integer not null,
    active_runs integer not null default 0,
    connections text[] not null default '{}',
    python_tasks text[] not null default '{}',
    status text not null default 'READY' check (status in ('READY', 'DRAINING', 'STOPPED')),
    -- What the runner found at its connections when it started: {connection: what is wrong, or null}.
    health jsonb not null default '{}',
    started_at timestamptz not null default clock_timestamp(),
    heartbeat_at timestamptz not null default clock_timestamp(),
    drain_requested boolean not null default false,
    taken_over bigint not null default 0
) with (fillfactor = 70);
comment on column etl.etl_runners.drain_requested is 'the runner shall hand its pipelines back and stop';
comment on column etl.etl_runners.taken_over is 'pipelines that others left behind, since it started';

create function etl.tell_drain() returns trigger language plpgsql as $$
begin
    perform pg_notify('vitrina', 'DRAIN');
    return null;
end $$;
create trigger tell_drain after update of drain_requested on etl.etl_runners
    for each row when (new.drain_requested and not old.drain_requested) execute function etl.tell_drain();

create table etl.etl_python_tasks (
    name text not null,
    runner text not null references etl.etl_runners on delete cascade,
    kind text not null check (kind in ('transform', 'source')),
    version_hash text not null,
    doc text not null default '',
    published_at timestamptz not null default clock_timestamp(),
    primary key (name, runner)
);

create table etl.etl_requests (
    id uuid primary key,
    kind text not null,
    pipeline_id uuid references etl.etl_pipelines on delete set null,
    payload jsonb not null default '{}',
    status text not null default 'REQUESTED' check (status in ('REQUESTED', 'RUNNING', 'DONE', 'FAILED', 'EXPIRED')),
    connections_needed text[] not null default '{}',
    owner uuid,
    lease_token bigint not null default 0,
    lease_until timestamptz,
    answer jsonb,
    error_code text,
    error text check (length(error) <= 4000),
    requested_at timestamptz not null default clock_timestamp(),
    expires_at timestamptz not null,
    finished_at timestamptz,
    requested_by text,
    runner text,
    -- What only a runner with these Python functions can answer.
    tasks_needed text[] not null default '{}',
    constraint running_requests_have_an_owner
        check ((owner is not null) = (status = 'RUNNING') and (lease_until is not null) = (status = 'RUNNING')),
    constraint ended_requests_have_an_end check ((finished_at is null) = (status in ('REQUESTED', 'RUNNING')))
);
create index etl_requests_open on etl.etl_requests (requested_at) where status in ('REQUESTED', 'RUNNING');

-- Runners are notified of requests, and whoever waits for an answer of that.
create function etl.tell_request() returns trigger language plpgsql as $$
begin
    perform pg_notify('vitrina', new.id || case when new.status in ('REQUESTED', 'RUNNING') then ' REQUEST' else ' ANSWER' end);
    return null;
end $$;
create trigger tell_request after insert on etl.etl_requests for each row execute function etl.tell_request();
create trigger tell_answer after update of status on etl.etl_requests
    for each row when (old.status is distinct from new.status and new.status <> 'RUNNING') execute function etl.tell_request();
