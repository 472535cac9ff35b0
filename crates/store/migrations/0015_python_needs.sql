-- What only a runner with these Python functions can answer, and plans that read a table without a query.

alter table etl.etl_requests add column tasks_needed text[] not null default '{}';

alter table etl.etl_pipeline_tasks drop constraint etl_pipeline_tasks_body_check;
alter table etl.etl_pipeline_tasks add constraint etl_pipeline_tasks_body_check
    check (btrim(body) <> '' or (task_type = 'SQL' and btrim(coalesce(source_table, '')) <> ''));
