-- What is configured: pipelines, their task plans, targets, and the version of that configuration.
-- The database itself refuses impossible states: the API, the runners and a person in psql meet here.

-- Tells installations apart where a mart or a change log serves several of them.
create table etl.etl_installation (
    id uuid not null default gen_random_uuid(),
    only_one boolean primary key default true check (only_one)
);
insert into etl.etl_installation default values;

-- Lets a mart's session ask whether it shares the meta-store's database.
create function etl.installation_id() returns uuid
    language sql stable security definer set search_path = pg_catalog, pg_temp
    as 'select id from etl.etl_installation';

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
    updated_at timestamptz not null default now(),
    -- How rows become documents, where the target is a search index.
    document jsonb not null default '{}' check (jsonb_typeof(document) = 'object'),
    -- Several pipelines may write to one mart, where its target says by what they share it.
    shared jsonb check (shared ->> 'by' in ('rows', 'columns'))
);
comment on column etl.etl_targets.key is 'the mart''s unique key; empty means its primary key';
comment on column etl.etl_targets.touch_column is 'set to the time of writing on rows that changed, and on no others';
comment on column etl.etl_targets.document is 'rename: column to field; omit: columns; partial: several pipelines write to the index; take_over: what has its name may be replaced';
comment on column etl.etl_targets.shared is '{"by": "rows", "column": "..."}: each pipeline writes the rows that have its shared_value in the column; {"by": "columns"}: each writes the columns that its query returns; null: one pipeline writes';

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

    -- How a load is read and first written, and how many of its rows may be refused.
    read text not null default 'auto' check (read in ('auto', 'keyset', 'stream')),
    first_load text not null default 'direct' check (first_load in ('direct', 'staged')),
    reject_limit bigint not null default 0 check (reject_limit >= 0),
    -- What names dirty rows: the columns of the mart that changes are named by, and further tables to watch.
    change_key text[] not null default '{}',
    watch jsonb not null default '[]' check (jsonb_typeof(watch) = 'array'),

    -- When it runs next by its schedule, and the schedules of comparisons and of full runs.
    next_run_at timestamptz,
    schedule_error text check (length(schedule_error) <= 1000),
    freshness_limit_seconds bigint check (freshness_limit_seconds > 0),
    reconcile_schedule text,
    next_reconcile_at timestamptz,
    reconcile_schedule_error text check (length(reconcile_schedule_error) <= 1000),
    full_schedule text,
    next_full_run_at timestamptz,
    full_schedule_error text check (length(full_schedule_error) <= 1000),

    shared_value text,
    on_change text not null default 'ask' check (on_change in ('ask', 'keep', 'reset')),

    constraint only_enabled_pipelines_run check (enabled or status not in ('RUN_REQUESTED', 'RUNNING')),
    constraint active_pipelines_have_a_run
        check ((run_id is not null) = (status in ('RUN_REQUESTED', 'RUNNING', 'PAUSE_REQUESTED'))),
    constraint leased_pipelines_have_an_owner
        check ((owner is not null) = (status in ('RUNNING', 'PAUSE_REQUESTED'))
               and (lease_until is not null) = (status in ('RUNNING', 'PAUSE_REQUESTED'))),
    -- A Python source keeps positions of its own: it needs no cursor among the columns of its rows.
    constraint incremental_pipelines_have_a_key
        check (mode <> 'incremental' or capture <> 'cursor' or incremental_key is not null or source_type = 'python')
) with (fillfactor = 70);
comment on column etl.etl_pipelines.reject_limit is 'how many rejects a run may add that nobody has acknowledged';
comment on column etl.etl_pipelines.change_key is 'columns of the mart by which changes are named; empty means the target''s key';
comment on column etl.etl_pipelines.next_run_at is 'set by runners; null until one has looked at the schedule, and while the pipeline is disabled';
comment on column etl.etl_pipelines.schedule_error is 'why schedule_interval says nothing';
comment on column etl.etl_pipelines.freshness_limit_seconds is 'how far the target may lag behind its source before somebody should look; null means no limit';
comment on column etl.etl_pipelines.reconcile_schedule is 'when the target is compared with its source, as schedule_interval says when it is run';
comment on column etl.etl_pipelines.full_schedule is 'when a run of mode full is requested, as schedule_interval says when one of the own mode is';
comment on column etl.etl_pipelines.shared_value is 'what its rows have in the column by which its target is shared';
comment on column etl.etl_pipelines.on_change is 'what an incremental run does with a checkpoint of another configuration: ask a person, keep it, or reset it and read everything again';
-- The claim's only index. None on lease_until: heartbeats stay heap-only updates.
create index etl_pipelines_active on etl.etl_pipelines (requested_at)
    where status in ('RUN_REQUESTED', 'RUNNING', 'PAUSE_REQUESTED');

create table etl.etl_pipeline_tasks (
    id uuid primary key default gen_random_uuid(),
    pipeline_id uuid not null references etl.etl_pipelines on delete cascade,
    order_index integer not null check (order_index >= 0),
    task_type text not null check (task_type in ('SQL', 'PYTHON')),
    body text not null,
    source_table text,
    target_table text,
    unique (pipeline_id, order_index),
    -- A task that reads a table needs no query.
    constraint etl_pipeline_tasks_body_check
        check (btrim(body) <> '' or (task_type = 'SQL' and btrim(coalesce(source_table, '')) <> ''))
);
comment on column etl.etl_pipeline_tasks.body is 'SQL text, or the name of a registered Python task; never code';

-- Whoever changes the configuration, in psql too, makes a new version of it.
create function etl.raise_version() returns trigger language plpgsql as $$
begin
    new.version := old.version + 1;
    new.updated_at := clock_timestamp();
    return new;
end $$;
-- Of these columns only: heartbeats and commits, which are many, do not even ask.
create trigger raise_version before update of
    name, description, tags, type, source_type, source_connection, source_table, source_query, target_table, mode,
    batch_size, enabled, schedule_interval, incremental_key, incremental_id_key, capture, change_key, watch,
    late_window_seconds, delete_limit, reject_limit, freshness_limit_seconds, read, first_load, python_task
    on etl.etl_pipelines
    for each row when (
        (old.name, old.description, old.tags, old.type, old.source_type, old.source_connection, old.source_table,
         old.source_query, old.target_table, old.mode, old.batch_size, old.enabled, old.schedule_interval,
         old.incremental_key, old.incremental_id_key, old.capture, old.change_key, old.watch, old.late_window_seconds,
         old.delete_limit, old.reject_limit, old.freshness_limit_seconds, old.read, old.first_load, old.python_task)
        is distinct from
        (new.name, new.description, new.tags, new.type, new.source_type, new.source_connection, new.source_table,
         new.source_query, new.target_table, new.mode, new.batch_size, new.enabled, new.schedule_interval,
         new.incremental_key, new.incremental_id_key, new.capture, new.change_key, new.watch, new.late_window_seconds,
         new.delete_limit, new.reject_limit, new.freshness_limit_seconds, new.read, new.first_load, new.python_task))
    execute function etl.raise_version();
create trigger raise_version_of_reconcile before update of reconcile_schedule on etl.etl_pipelines
    for each row when (old.reconcile_schedule is distinct from new.reconcile_schedule) execute function etl.raise_version();
create trigger raise_version_of_full_schedule before update of full_schedule on etl.etl_pipelines
    for each row when (old.full_schedule is distinct from new.full_schedule) execute function etl.raise_version();
create trigger raise_version_of_shared_value before update of shared_value on etl.etl_pipelines
    for each row when (old.shared_value is distinct from new.shared_value) execute function etl.raise_version();
create trigger raise_version_of_on_change before update of on_change on etl.etl_pipelines
    for each row when (old.on_change is distinct from new.on_change) execute function etl.raise_version();

create trigger raise_version before update on etl.etl_targets
    for each row when (
        (old.connection, old.key, old.touch_column, old.create_if_missing, old.mapping, old.settings, old.document)
        is distinct from
        (new.connection, new.key, new.touch_column, new.create_if_missing, new.mapping, new.settings, new.document))
    execute function etl.raise_version();
create trigger raise_version_of_shared before update of shared on etl.etl_targets
    for each row when (old.shared is distinct from new.shared) execute function etl.raise_version();

-- A plan is part of its pipeline's configuration. Statement by statement: a plan is replaced as a whole.
create function etl.raise_version_of_plan() returns trigger language plpgsql as $$
begin
    update etl.etl_pipelines set version = version + 1, updated_at = clock_timestamp()
     where id in (select distinct pipeline_id from changed);
    return null;
end $$;
create trigger raise_version_of_new after insert on etl.etl_pipeline_tasks
    referencing new table as changed for each statement execute function etl.raise_version_of_plan();
create trigger raise_version after update on etl.etl_pipeline_tasks
    referencing new table as changed for each statement execute function etl.raise_version_of_plan();
create trigger raise_version_of_gone after delete on etl.etl_pipeline_tasks
    referencing old table as changed for each statement execute function etl.raise_version_of_plan();
