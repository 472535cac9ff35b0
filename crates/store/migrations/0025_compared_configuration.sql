-- What a verdict is about: it says nothing of a target whose pipeline reads or writes something else by now.
alter table etl.etl_reconciles add column configuration text;
comment on column etl.etl_reconciles.configuration is
    'a hash of what decides which rows the target must have, as it was when they were compared; null where it was not kept';
