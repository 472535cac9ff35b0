-- Who may ask, and who sees rows: tokens, and an audit of every change that nobody who writes it can change.

create table etl.etl_tokens (
    id uuid primary key default gen_random_uuid(),
    name text not null unique,
    role text not null check (role in ('viewer', 'operator', 'admin')),
    sha256 bytea not null unique check (length(sha256) = 32),
    created_at timestamptz not null default now(),
    last_used_at timestamptz,
    expires_at timestamptz,
    sees_rows boolean not null default false,
    tags text[] check (cardinality(tags) > 0 and array_position(tags, null) is null and array_position(tags, '') is null)
);
comment on column etl.etl_tokens.sha256 is 'the token itself is shown once, when it is made, and stored nowhere';
comment on column etl.etl_tokens.sees_rows is 'values of rows: rejects, differences, previews, errors that quote them';
comment on column etl.etl_tokens.tags is 'the scope of the token: pipelines that have one of these tags; null for all';

-- Whoever listens by a token is cut off at once when it ends, or when its scope is changed.
create function etl.tell_token() returns trigger language plpgsql as $$
begin
    perform pg_notify('vitrina', 'TOKEN');
    return null;
end $$;
create trigger tell_token after insert or update of role, sha256, expires_at, sees_rows, tags or delete on etl.etl_tokens
    for each statement execute function etl.tell_token();

create table etl.etl_audit (
    id bigint generated always as identity primary key,
    at timestamptz not null default clock_timestamp(),
    actor text not null,
    action text not null,
    subject text not null,
    before jsonb,
    after jsonb,
    request_id text
);
create index etl_audit_newest on etl.etl_audit (at desc);

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
