//! What an index says of the rows of its table.

/// Of an index `i`: no two rows of its table are equal in its columns, as these compare values. Not those of a table from which
/// others inherit, whose rows are none of the index's; nor an index that tells values apart which its columns take for one,
/// by a collation or operators of its own.
pub(crate) const TELLS_ROWS_APART: &str = "i.indisunique and i.indisvalid and i.indpred is null and i.indexprs is null
    and not exists (select from pg_catalog.pg_class t where t.oid = i.indrelid and t.relkind = 'r' and t.relhassubclass)
    and not exists (
        select from unnest(i.indkey::int2[], i.indcollation::oid[], i.indclass::oid[]) with ordinality k(number, collation_oid, class, n)
          join pg_catalog.pg_attribute ka on ka.attrelid = i.indrelid and ka.attnum = k.number
          join pg_catalog.pg_type kt on kt.oid = ka.atttypid
          join pg_catalog.pg_opclass kc on kc.oid = k.class
          left join pg_catalog.pg_collation co on co.oid = ka.attcollation
         where k.n <= i.indnkeyatts
           and (not coalesce(co.collisdeterministic, true) and k.collation_oid <> ka.attcollation
                or not exists (select from pg_catalog.pg_opclass d
                                where d.opcmethod = kc.opcmethod and d.opcfamily = kc.opcfamily and d.opcdefault)
                or kc.opcintype <> coalesce(nullif(kt.typbasetype, 0), kt.oid)
                   and exists (select from pg_catalog.pg_opclass d
                                where d.opcmethod = kc.opcmethod and d.opcdefault
                                  and d.opcintype = coalesce(nullif(kt.typbasetype, 0), kt.oid))))";
