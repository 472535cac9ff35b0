-- A load that failed is begun anew, unless a run is asked to continue it; a paused one is continued.
alter table etl.etl_runs add column resume boolean not null default false;
comment on column etl.etl_runs.resume is 'continues the load that an earlier run left open';
