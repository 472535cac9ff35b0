-- A backfill or a rollback that fails leaves the pipeline in the status it had before.

alter table etl.etl_runs
    add column status_before text check (status_before in ('IDLE', 'PAUSED', 'FAILED'));
comment on column etl.etl_runs.status_before is 'of a backfill or a rollback: the status of its pipeline when it was requested';

create or replace function etl.check_transition() returns trigger language plpgsql as $$
begin
    if tg_op = 'INSERT' then
        if new.status = 'IDLE' then return new; end if;
        raise exception 'a pipeline begins IDLE, not %', new.status using errcode = 'VT003';
    end if;
    if (old.status, new.status) in (
        ('IDLE', 'RUN_REQUESTED'), ('IDLE', 'PAUSED'),
        ('RUN_REQUESTED', 'RUNNING'), ('RUN_REQUESTED', 'PAUSED'), ('RUN_REQUESTED', 'IDLE'),
        ('RUNNING', 'PAUSE_REQUESTED'), ('RUNNING', 'IDLE'), ('RUNNING', 'RUN_REQUESTED'), ('RUNNING', 'FAILED'),
        ('RUNNING', 'PAUSED'),
        ('PAUSE_REQUESTED', 'PAUSED'), ('PAUSE_REQUESTED', 'IDLE'), ('PAUSE_REQUESTED', 'FAILED'),
        ('PAUSE_REQUESTED', 'RUN_REQUESTED'),
        ('PAUSED', 'RUN_REQUESTED'), ('PAUSED', 'IDLE'),
        ('FAILED', 'RUN_REQUESTED'), ('FAILED', 'IDLE')) then
        return new;
    end if;
    raise exception 'a pipeline cannot go from % to %', old.status, new.status using errcode = 'VT003';
end $$;
