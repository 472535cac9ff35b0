-- Who sees rows, which pipelines a token is for, and an audit that nobody who writes it can change.

alter table etl.etl_tokens
    add column sees_rows boolean not null default false,
    add column tags text[] check (cardinality(tags) > 0);
comment on column etl.etl_tokens.sees_rows is 'values of rows: rejects, differences, previews, errors that quote them';
comment on column etl.etl_tokens.tags is 'only pipelines with one of these tags; null means all';
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
