-- Which leases this meta-store has issued for each pipeline. A target remembers the lease that it was acquired with last: one
-- that is not among these is another copy's of this meta-store, or newer than the backup that it was restored from.
create table etl.etl_lease_owners (
    pipeline_id uuid primary key references etl.etl_pipelines on delete cascade,
    -- The oldest first. Bounded: see etl.with_lease_owner.
    owners uuid[] not null default '{}',
    adopts boolean not null default false,
    target_token bigint
);
comment on column etl.etl_lease_owners.adopts is 'a person has decided that this meta-store is the rightful one: the next run accepts whoever wrote to the target last';
comment on column etl.etl_lease_owners.target_token is 'the newest token that a run has found at its target and was stopped by: later claims go above it';

-- Appends. Whoever acquires a target first cuts a long list down to the lease found there and the newest ones, so that
-- the one at the target is always among the first 101; where no target is reached for long, only those in the middle go.
create function etl.with_lease_owner(p_owners uuid[], p_owner uuid) returns uuid[]
    language sql immutable set search_path = pg_catalog, pg_temp as $$
    select case when cardinality(p_owners) < 500 then p_owners || p_owner
                else p_owners[:101] || p_owners[cardinality(p_owners) - 249:] || p_owner end
$$;

-- Lets a mart's session ask whether the meta-store in its database is the very one that has issued a lease, or handed out a
-- request or a comparison: owners are random, so a copy of it cannot know them.
create function etl.holds_lease(p_id uuid, p_owner uuid) returns boolean
    language sql stable security definer set search_path = pg_catalog, pg_temp as $$
    select exists (select from etl.etl_pipelines where id = p_id and owner = p_owner)
        or exists (select from etl.etl_requests where id = p_id and owner = p_owner)
        or exists (select from etl.etl_reconciles where id = p_id and owner = p_owner)
$$;
