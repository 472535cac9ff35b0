-- Who sees rows, tokens whose end is heard of, and an audit that nobody who writes it can change.

alter table etl.etl_tokens
    add column sees_rows boolean not null default false;
comment on column etl.etl_tokens.sees_rows is 'values of rows: rejects, differences, previews, errors that quote them';
update etl.etl_tokens set sees_rows = role <> 'viewer';

-- Errors from before values were marked may quote rows anywhere: they are marked as a whole.
update etl.etl_runs set error = left(chr(64976) || error, 3999) || chr(64977)
 where error_code like 'python.%' or error ~ ' answers (0A|3D|3F|42|54|55)' or error ~ 'the search server';
update etl.etl_attempts set error = left(chr(64976) || error, 3999) || chr(64977)
 where error_code like 'python.%' or error ~ ' answers (0A|3D|3F|42|54|55)' or error ~ 'the search server';
update etl.etl_reconciles set error = left(chr(64976) || error, 3999) || chr(64977)
 where error_code like 'python.%' or error ~ ' answers (0A|3D|3F|42|54|55)' or error ~ 'the search server';
update etl.etl_rejects set message = chr(64976) || message || chr(64977)
 where code like 'python.%' or code in ('row.mapping', 'row.refused', 'row.raised');
update etl.etl_logs set message = 'python: ' || chr(64976) || substr(message, 9) || chr(64977)
 where message like 'python: %';

-- Whoever listens by a token hears at once that it is worth nothing any more.
create function etl.tell_token() returns trigger language plpgsql as $$
begin
    perform pg_notify('vitrina', 'TOKEN');
    return null;
end $$;
create trigger tell_token after insert or update of role, sha256, expires_at, sees_rows or delete on etl.etl_tokens
    for each statement execute function etl.tell_token();

-- The audit only grows: its time is the database's, and what is younger than 90 days stays, whoever asks. The login of the
-- services does not own the table, so it can neither delete nor switch this off.
create function etl.keep_audit() returns trigger language plpgsql set search_path = pg_catalog, pg_temp as $$
begin
    if tg_op = 'INSERT' then
        new.at := clock_timestamp();
        return new;
    end if;
    if tg_op = 'DELETE' then
        if old.at < now() - interval '90 days'
           and current_user = (select pg_get_userbyid(relowner) from pg_class where oid = tg_relid) then
            return old;
        end if;
        raise exception 'the audit is append-only' using errcode = 'insufficient_privilege',
            hint = 'etl.forget_audit forgets what is older than 90 days';
    end if;
    raise exception 'the audit is append-only' using errcode = 'insufficient_privilege';
end $$;
create trigger keep_audit before insert or update or delete on etl.etl_audit
    for each row execute function etl.keep_audit();
create trigger keep_whole_audit before truncate on etl.etl_audit
    for each statement execute function etl.keep_audit();

-- The owner's: forgets what is older than this, and never what is younger than 90 days.
create function etl.forget_audit(older_than interval) returns bigint
    language sql security definer set search_path = pg_catalog, pg_temp as $$
    with forgotten as (
        delete from etl.etl_audit where at < now() - greatest(older_than, interval '90 days') returning 1
    )
    select count(*) from forgotten;
$$;
revoke all on function etl.forget_audit(interval) from public;
