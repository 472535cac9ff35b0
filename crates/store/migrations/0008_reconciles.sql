-- Comparisons of targets with their sources. A runner takes one under a lease of its own, the pipeline may run meanwhile.

create table etl.etl_reconciles (
    id uuid primary key,
    pipeline_id uuid not null references etl.etl_pipelines on delete cascade,
    level text not null check (level in ('count', 'hash', 'rows')),
    -- So many differences are kept at most.
    keep integer not null check (keep between 0 and 100000),
    trigger text not null check (trigger in ('manual', 'schedule', 'repair')),
    requested_by text,
    connections_needed text[] not null default '{}',
    tasks_needed text[] not null default '{}',
    -- What it has to prove: only the keys that this one found are compared, once the run that repairs them has ended.
    repair_of uuid references etl.etl_reconciles on delete cascade,
    repair_run_id uuid references etl.etl_runs on delete set null,
    -- Speaks for the whole target: all of it is compared, or all that such a comparison has found. A count that finds nothing
    -- does not speak against rows that were found to differ.
    whole boolean not null default true,
    status text not null default 'REQUESTED' check (status in ('REQUESTED', 'RUNNING', 'DONE', 'FAILED', 'CANCELLED')),
    cancel_requested boolean not null default false,
    owner uuid,
    runner text,
    lease_until timestamptz,
    attempts integer not null default 0,
    progress jsonb,
    verdict text check (verdict in ('equal', 'differs', 'stale')),
    figures jsonb,
    error_code text,
    error text check (length(error) <= 4000),
    requested_at timestamptz not null default clock_timestamp(),
    started_at timestamptz,
    finished_at timestamptz,
    configuration text,
    constraint running_reconciles_have_an_owner
        check ((owner is not null) = (status = 'RUNNING') and (lease_until is not null) = (status = 'RUNNING')),
    constraint ended_reconciles_have_an_end check ((finished_at is null) = (status in ('REQUESTED', 'RUNNING'))),
    constraint done_reconciles_have_a_verdict check ((verdict is not null) = (status = 'DONE') and (figures is not null) = (status = 'DONE')),
    constraint a_proof_is_of_a_repair check ((repair_of is not null) = (trigger = 'repair'))
);
comment on column etl.etl_reconciles.configuration is
    'a hash of what decides which rows the target must have, as it was when they were compared; null where it was not kept';
create index etl_reconciles_newest on etl.etl_reconciles (pipeline_id, requested_at desc);
create index etl_reconciles_verdicts on etl.etl_reconciles (pipeline_id, requested_at desc) where status = 'DONE' and whole;
create index etl_reconciles_repairs on etl.etl_reconciles (repair_of) where repair_of is not null;
create index etl_reconciles_repair_runs on etl.etl_reconciles (repair_run_id) where repair_run_id is not null;
create index etl_reconciles_finished on etl.etl_reconciles (finished_at);
create index etl_reconciles_open on etl.etl_reconciles (requested_at) where status in ('REQUESTED', 'RUNNING');
create index etl_reconciles_proofs on etl.etl_reconciles (pipeline_id) where repair_of is not null and status = 'REQUESTED';

create table etl.etl_differences (
    reconcile_id uuid not null references etl.etl_reconciles on delete cascade,
    n integer not null,
    kind text not null check (kind in ('missing', 'extra', 'different')),
    key jsonb not null,
    columns jsonb not null default '{}',
    primary key (reconcile_id, n)
);

-- Runners are notified of reconciles; whoever waits for an end is notified of that.
create function etl.tell_reconcile() returns trigger language plpgsql as $$
begin
    perform pg_notify('vitrina', new.id || case when new.status = 'REQUESTED' then ' REQUEST' else ' ANSWER' end);
    return null;
end $$;
create trigger tell_reconcile after insert on etl.etl_reconciles for each row execute function etl.tell_reconcile();
create trigger tell_end after update of status on etl.etl_reconciles
    for each row when (old.status is distinct from new.status and new.status <> 'RUNNING') execute function etl.tell_reconcile();

-- A repair has ended: now it can be proved.
create function etl.tell_repaired() returns trigger language plpgsql as $$
begin
    perform pg_notify('vitrina', id || ' REQUEST') from etl.etl_reconciles
      where pipeline_id = new.pipeline_id and repair_of is not null and status = 'REQUESTED';
    return null;
end $$;
create trigger tell_repaired after update of finished_at on etl.etl_runs
    for each row when (old.finished_at is null and new.finished_at is not null) execute function etl.tell_repaired();
