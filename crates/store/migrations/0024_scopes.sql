-- Tokens of teams: one with tags is for the pipelines that have one of them.

alter table etl.etl_tokens
    add column tags text[] check (cardinality(tags) > 0 and array_position(tags, null) is null and array_position(tags, '') is null);
comment on column etl.etl_tokens.tags is 'the scope of the token: pipelines that have one of these tags; null for all';

-- Whoever listens by a token whose scope is changed hears no more by the one before.
drop trigger tell_token on etl.etl_tokens;
create trigger tell_token after insert or update of role, sha256, expires_at, sees_rows, tags or delete on etl.etl_tokens
    for each statement execute function etl.tell_token();

-- Errors from before names of other pipelines were marked: those that may hold one are marked as a whole.
update etl.etl_runs set error = left(chr(64978) || error, 3999) || chr(64979) where error_code = 'sink.owned';
update etl.etl_attempts set error = left(chr(64978) || error, 3999) || chr(64979) where error_code = 'sink.owned';
update etl.etl_reconciles set error = left(chr(64978) || error, 3999) || chr(64979) where error_code = 'sink.owned';
update etl.etl_logs set fields = jsonb_set(fields, '{error}', to_jsonb(chr(64978) || (fields ->> 'error') || chr(64979)))
 where fields ->> 'error' ~ '(is written by pipeline|is shared by fields|is not shared as it is now)';
update etl.etl_logs set message = chr(64978) || message || chr(64979)
 where message ~ '(is written by pipeline|is shared by fields|is not shared as it is now)';
