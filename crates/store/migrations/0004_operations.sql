-- Who works here and who may ask: runners, what they can run, requests only a runner can answer,
-- reconciles, tokens, and the audit of every change.

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
    heartbeat_at timestamptz not null default clock_timestamp()
) with (fillfactor = 70);

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
    constraint running_requests_have_an_owner
        check ((owner is not null) = (status = 'RUNNING') and (lease_until is not null) = (status = 'RUNNING')),
    constraint ended_requests_have_an_end check ((finished_at is null) = (status in ('REQUESTED', 'RUNNING')))
);
create index etl_requests_open on etl.etl_requests (requested_at) where status in ('REQUESTED', 'RUNNING');

create table etl.etl_reconciles (
    id uuid primary key,
    pipeline_id uuid not null references etl.etl_pipelines on delete cascade,
    request_id uuid not null references etl.etl_requests on delete cascade,
    level text not null check (level in ('count', 'hash', 'rows')),
    verdict text check (verdict in ('equal', 'differs', 'stale')),
    figures jsonb not null default '{}',
    requested_at timestamptz not null default clock_timestamp(),
    finished_at timestamptz,
    constraint a_verdict_has_its_time check ((verdict is null) = (finished_at is null))
);
create index etl_reconciles_newest on etl.etl_reconciles (pipeline_id, requested_at desc);

create table etl.etl_tokens (
    id uuid primary key default gen_random_uuid(),
    name text not null unique,
    role text not null check (role in ('viewer', 'operator', 'admin')),
    sha256 bytea not null unique check (length(sha256) = 32),
    created_at timestamptz not null default now(),
    last_used_at timestamptz
);
comment on column etl.etl_tokens.sha256 is 'the token itself is shown once, when it is made, and stored nowhere';

create table etl.etl_audit (
    id bigint generated always as identity primary key,
    at timestamptz not null default clock_timestamp(),
    actor text not null,
    action text not null,
    subject text not null,
    before jsonb,
    after jsonb,
    request_id text
);
create index etl_audit_newest on etl.etl_audit (at desc);
