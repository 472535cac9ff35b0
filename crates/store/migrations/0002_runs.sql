-- What happened: a run for every request, an attempt for every claim and retry within it (R-EX-10),
-- a row for every batch, and the rows that were refused.

create table etl.etl_runs (
    id uuid primary key,
    pipeline_id uuid not null references etl.etl_pipelines on delete cascade,
    status text not null default 'REQUESTED'
        check (status in ('REQUESTED', 'RUNNING', 'SUCCESS', 'FAILED', 'PAUSED', 'CANCELLED')),
    trigger text not null check (trigger in ('api', 'schedule', 'resume', 'pending')),
    mode text not null check (mode in ('full', 'incremental')),
    -- Pipeline, plan and target as they were at the request: the run works on these (R-EX-11).
    snapshot jsonb not null,
    idempotency_key text,
    cancel_requested boolean not null default false,
    requested_at timestamptz not null default clock_timestamp(),
    started_at timestamptz,
    finished_at timestamptz,
    rows_read bigint not null default 0,
    rows_written bigint not null default 0,
    rows_unchanged bigint not null default 0,
    rows_deleted bigint not null default 0,
    rows_rejected bigint not null default 0,
    bytes bigint not null default 0,
    batches bigint not null default 0,
    error_code text,
    error text check (length(error) <= 4000),
    constraint closed_runs_have_an_end check ((finished_at is null) = (status in ('REQUESTED', 'RUNNING'))),
    constraint failed_runs_have_an_error check (status <> 'FAILED' or error is not null)
) with (fillfactor = 80);
create unique index one_open_run_a_pipeline on etl.etl_runs (pipeline_id) where status in ('REQUESTED', 'RUNNING');
create unique index one_run_an_idempotency_key on etl.etl_runs (pipeline_id, idempotency_key) where idempotency_key is not null;
create index etl_runs_newest on etl.etl_runs (pipeline_id, requested_at desc);

create table etl.etl_attempts (
    id bigint generated always as identity primary key,
    run_id uuid not null references etl.etl_runs on delete cascade,
    pipeline_id uuid not null,
    runner text not null,
    token bigint not null,
    started_at timestamptz not null default clock_timestamp(),
    ended_at timestamptz,
    error_code text,
    error text check (length(error) <= 4000)
);
create unique index one_open_attempt_a_run on etl.etl_attempts (run_id) where ended_at is null;
create index etl_attempts_run on etl.etl_attempts (run_id);

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
    primary key (pipeline_id, key_hash)
);
