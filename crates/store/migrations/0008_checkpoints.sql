-- What people decide about checkpoints.
alter table etl.etl_runs add column checkpoint text check (checkpoint in ('keep', 'reset'));
comment on column etl.etl_runs.checkpoint is 'what becomes of the checkpoint before the run goes on from it; null: it stays';
