-- What happened: a run for every request, an attempt for every claim and retry within it (R-EX-10),
-- and what they logged.

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

    -- A backfill is over a list of keys, or over a range of the cursor, which may be long: then the run notes how far it has come.
    keys jsonb check (jsonb_typeof(keys) = 'array'),
    checkpoint text check (checkpoint in ('keep', 'reset')),
    backfill_range jsonb
        check (jsonb_typeof(backfill_range) = 'object' and (backfill_range is null or keys is null)),
    -- The caller's trace, as the header `traceparent` of a request for a run gave it.
    traceparent text check (length(traceparent) <= 55),
    -- A run that switches readers back to the index from before the last load, and reads nothing.
    rollback boolean not null default false,
    -- A load that failed is begun anew, unless a run is asked to continue it; a paused one is continued.
    resume boolean not null default false,
    -- A backfill or a rollback that fails leaves the pipeline in the status it had before.
    status_before text check (status_before in ('IDLE', 'PAUSED', 'FAILED')),

    constraint closed_runs_have_an_end check ((finished_at is null) = (status in ('REQUESTED', 'RUNNING'))),
    constraint failed_runs_have_an_error check (status <> 'FAILED' or error is not null)
) with (fillfactor = 80);
comment on column etl.etl_runs.keys is 'a backfill: only these keys are read again, and the checkpoint stays';
comment on column etl.etl_runs.checkpoint is 'what becomes of the checkpoint before the run goes on from it; null: it stays';
comment on column etl.etl_runs.backfill_range is 'a backfill: only rows with from <= cursor < to are read again, at being how far it has come';
comment on column etl.etl_runs.resume is 'continues the load that an earlier run left open';
comment on column etl.etl_runs.status_before is 'of a backfill or a rollback: the status of its pipeline when it was requested';
create unique index one_open_run_a_pipeline on etl.etl_runs (pipeline_id) where status in ('REQUESTED', 'RUNNING');
create unique index one_run_an_idempotency_key on etl.etl_runs (pipeline_id, idempotency_key) where idempotency_key is not null;
create index etl_runs_newest on etl.etl_runs (pipeline_id, requested_at desc);
create index etl_runs_all on etl.etl_runs (requested_at desc, id desc);
create index etl_runs_finished on etl.etl_runs (finished_at);

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

create table etl.etl_logs (
    id bigint generated always as identity primary key,
    run_id uuid not null references etl.etl_runs on delete cascade,
    pipeline_id uuid not null,
    at timestamptz not null default clock_timestamp(),
    level text not null check (level in ('error', 'warn', 'info')),
    message text not null,
    fields jsonb not null default '{}'
);
create index etl_logs_run on etl.etl_logs (run_id, id);
