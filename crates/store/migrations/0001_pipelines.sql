-- What is configured (pipelines, their task plans, targets) and how far each has come (state).
-- The database itself refuses impossible states: the API, the runners and a person in psql meet here.

-- Tells installations apart where a mart or a change log serves several of them.
create table etl.etl_installation (
    id uuid not null default gen_random_uuid(),
    only_one boolean primary key default true check (only_one)
);
insert into etl.etl_installation default values;

create table etl.etl_targets (
    name text primary key,
    connection text not null default 'marts',
    key text[] not null default '{}',
    touch_column text,
    create_if_missing boolean not null default false,
    mapping jsonb,
    settings jsonb,
    version bigint not null default 1,
    created_at timestamptz not null default now(),
    updated_at timestamptz not null default now()
);
comment on column etl.etl_targets.key is 'the mart''s unique key; empty means its primary key';
comment on column etl.etl_targets.touch_column is 'set to the time of writing on rows that changed, and on no others';

create table etl.etl_pipelines (
    id uuid primary key default gen_random_uuid(),
    name text not null unique check (name <> ''),
    description text not null default '',
    tags text[] not null default '{}',
    type text not null default 'SQL' check (type in ('SQL', 'PYTHON')),
    source_type text not null default 'postgres',
    source_connection text not null default 'source',
    source_table text,
    source_query text,
    target_table text not null,
    mode text not null default 'full' check (mode in ('full', 'incremental')),
    batch_size integer not null default 1000 check (batch_size between 1 and 100000),
    enabled boolean not null default true,
    schedule_interval text,
    incremental_key text,
    incremental_id_key text,
    capture text not null default 'cursor' check (capture in ('cursor', 'changelog')),
    late_window_seconds bigint not null default 600 check (late_window_seconds >= 0),
    delete_limit double precision not null default 0.2 check (delete_limit between 0 and 1),
    python_task text,

    status text not null default 'IDLE'
        check (status in ('IDLE', 'RUN_REQUESTED', 'RUNNING', 'PAUSE_REQUESTED', 'PAUSED', 'FAILED')),
    version bigint not null default 1,
    created_at timestamptz not null default now(),
    updated_at timestamptz not null default now(),

    -- The open run, and one more request that waits for its end.
    run_id uuid,
    requested_at timestamptz,
    pending_request jsonb,
    paused_by_disable boolean not null default false,
    -- What a runner must have to execute the open run.
    connections_needed text[] not null default '{}',
    tasks_needed text[] not null default '{}',

    -- The lease: who executes it, until when, and the token that every write must name.
    owner uuid,
    lease_token bigint not null default 0,
    lease_until timestamptz,
    lease_length interval not null default '30 seconds',
    -- Leases that expired without a committed batch, and returns for want of a connection.
    stalls integer not null default 0,
    releases integer not null default 0,
    retry_at timestamptz,

    constraint only_enabled_pipelines_run check (enabled or status not in ('RUN_REQUESTED', 'RUNNING')),
    constraint active_pipelines_have_a_run
        check ((run_id is not null) = (status in ('RUN_REQUESTED', 'RUNNING', 'PAUSE_REQUESTED'))),
    constraint leased_pipelines_have_an_owner
        check ((owner is not null) = (status in ('RUNNING', 'PAUSE_REQUESTED'))
               and (lease_until is not null) = (status in ('RUNNING', 'PAUSE_REQUESTED'))),
    constraint incremental_pipelines_have_a_key
        check (mode <> 'incremental' or capture <> 'cursor' or incremental_key is not null)
) with (fillfactor = 70);
-- The claim's only index. None on lease_until: heartbeats stay heap-only updates.
create index etl_pipelines_active on etl.etl_pipelines (requested_at)
    where status in ('RUN_REQUESTED', 'RUNNING', 'PAUSE_REQUESTED');

create table etl.etl_pipeline_tasks (
    id uuid primary key default gen_random_uuid(),
    pipeline_id uuid not null references etl.etl_pipelines on delete cascade,
    order_index integer not null check (order_index >= 0),
    task_type text not null check (task_type in ('SQL', 'PYTHON')),
    body text not null check (btrim(body) <> ''),
    source_table text,
    target_table text,
    unique (pipeline_id, order_index)
);
comment on column etl.etl_pipeline_tasks.body is 'SQL text, or the name of a registered Python task; never code';

create table etl.etl_state (
    pipeline_id uuid primary key references etl.etl_pipelines on delete cascade,
    checkpoint jsonb not null default '{}',
    version bigint not null default 0,
    updated_at timestamptz not null default now(),
    last_processed_key text generated always as
        (coalesce(checkpoint #>> '{position,pass,position,0}', checkpoint #>> '{position,done,bound,0}')) stored,
    last_processed_id text generated always as
        (coalesce(checkpoint #>> '{position,pass,position,1}', checkpoint #>> '{position,done,bound,1}')) stored
) with (fillfactor = 70);

create function etl.open_state() returns trigger language plpgsql as $$
begin
    insert into etl.etl_state (pipeline_id) values (new.id);
    return null;
end $$;
create trigger open_state after insert on etl.etl_pipelines for each row execute function etl.open_state();
