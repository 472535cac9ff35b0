-- A Python source keeps positions of its own: it needs no cursor among the columns of its rows.

alter table etl.etl_pipelines drop constraint incremental_pipelines_have_a_key;
alter table etl.etl_pipelines add constraint incremental_pipelines_have_a_key
    check (mode <> 'incremental' or capture <> 'cursor' or incremental_key is not null or source_type = 'python');
