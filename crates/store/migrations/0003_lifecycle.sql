-- Which status may follow which, whoever writes it, and who is notified of a change.

create function etl.check_transition() returns trigger language plpgsql as $$
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
create trigger check_transition_of_new before insert on etl.etl_pipelines
    for each row execute function etl.check_transition();
create trigger check_transition before update of status on etl.etl_pipelines
    for each row when (old.status is distinct from new.status) execute function etl.check_transition();

-- Runners and pollers wait on channel `vitrina`; the payload is `<pipeline id> <what>`.
create function etl.tell_status() returns trigger language plpgsql as $$
begin
    perform pg_notify('vitrina', new.id || ' ' || new.status);
    return null;
end $$;
create trigger tell_status after update of status on etl.etl_pipelines
    for each row when (old.status is distinct from new.status) execute function etl.tell_status();

create function etl.tell_cancel() returns trigger language plpgsql as $$
begin
    perform pg_notify('vitrina', new.pipeline_id || ' CANCEL');
    return null;
end $$;
create trigger tell_cancel after update of cancel_requested on etl.etl_runs
    for each row when (new.cancel_requested and not old.cancel_requested) execute function etl.tell_cancel();
