-- Several pipelines may write to one mart, where its target says by what they share it.
alter table etl.etl_targets add column shared jsonb check (shared ->> 'by' in ('rows', 'columns'));
comment on column etl.etl_targets.shared is '{"by": "rows", "column": "..."}: each pipeline writes the rows that have its shared_value in the column; {"by": "columns"}: each writes the columns that its query returns; null: one pipeline writes';
create trigger raise_version_of_shared before update of shared on etl.etl_targets
    for each row when (old.shared is distinct from new.shared) execute function etl.raise_version();

alter table etl.etl_pipelines add column shared_value text;
comment on column etl.etl_pipelines.shared_value is 'what its rows have in the column by which its target is shared';
create trigger raise_version_of_shared_value before update of shared_value on etl.etl_pipelines
    for each row when (old.shared_value is distinct from new.shared_value) execute function etl.raise_version();
