//! The built-in functions a query may call: none reads tables, files or settings of the server by
//! name, and none is volatile, for which a test asks a real catalogue.

use std::collections::HashSet;
use std::sync::LazyLock;

const AGGREGATES: &str = "
    any_value array_agg avg bit_and bit_or bit_xor bool_and bool_or corr count covar_pop covar_samp
    every grouping json_agg json_agg_strict json_object_agg json_object_agg_strict
    json_object_agg_unique json_object_agg_unique_strict jsonb_agg jsonb_agg_strict jsonb_object_agg
    jsonb_object_agg_strict jsonb_object_agg_unique jsonb_object_agg_unique_strict max min mode
    percentile_cont percentile_disc range_agg range_intersect_agg regr_avgx regr_avgy regr_count
    regr_intercept regr_r2 regr_slope regr_sxx regr_sxy regr_syy stddev stddev_pop stddev_samp
    string_agg sum var_pop var_samp variance";

const WINDOWS: &str = "
    cume_dist dense_rank first_value lag last_value lead nth_value ntile percent_rank rank row_number";

const TEXT: &str = "
    ascii bit_count bit_length btrim casefold char_length character_length chr concat concat_ws
    convert_from convert_to crc32 crc32c decode encode format get_bit get_byte initcap is_normalized
    left length like_escape lower lpad ltrim md5 normalize octet_length overlay parse_ident
    pg_size_pretty position quote_ident quote_literal quote_nullable regexp_count
    regexp_instr regexp_like regexp_match regexp_matches regexp_replace regexp_split_to_array
    regexp_split_to_table regexp_substr repeat replace reverse right rpad rtrim set_bit set_byte
    sha224 sha256 sha384 sha512 similar_to_escape split_part starts_with string_to_array
    string_to_table strpos substr substring to_ascii to_bin to_hex to_oct translate unicode_assigned
    unistr upper uuid_extract_timestamp uuid_extract_version";

const TIME: &str = "
    age date_add date_bin date_part date_subtract date_trunc extract isfinite justify_days
    justify_hours justify_interval make_date make_interval make_time make_timestamp make_timestamptz
    now overlaps statement_timestamp timezone to_char to_date to_timestamp transaction_timestamp";

const NUMBERS: &str = "
    abs acos acosd acosh asin asind asinh atan atan2 atan2d atand atanh cbrt ceil ceiling cos cosd
    cosh cot cotd degrees div erf erfc exp factorial floor gamma gcd lcm lgamma ln log log10
    min_scale mod pi power radians round scale sign sin sind sinh sqrt tan tand tanh to_number
    trim_scale trunc width_bucket";

const JSON: &str = "
    array_to_json json_array_elements json_array_elements_text json_array_length json_build_array
    json_build_object json_each json_each_text json_extract_path json_extract_path_text json_object
    json_object_keys json_populate_record json_populate_recordset json_strip_nulls json_to_record
    json_to_recordset json_typeof jsonb_array_elements jsonb_array_elements_text jsonb_array_length
    jsonb_build_array jsonb_build_object jsonb_concat jsonb_contains jsonb_delete jsonb_delete_path
    jsonb_each jsonb_each_text jsonb_exists jsonb_exists_all jsonb_exists_any jsonb_extract_path
    jsonb_extract_path_text jsonb_insert jsonb_object jsonb_object_keys jsonb_path_exists
    jsonb_path_exists_tz jsonb_path_match jsonb_path_match_tz jsonb_path_query
    jsonb_path_query_array jsonb_path_query_array_tz jsonb_path_query_first
    jsonb_path_query_first_tz jsonb_path_query_tz jsonb_populate_record jsonb_populate_recordset
    jsonb_pretty jsonb_set jsonb_set_lax jsonb_strip_nulls jsonb_to_record jsonb_to_recordset
    jsonb_typeof row_to_json to_json to_jsonb";

const ARRAYS_AND_RANGES: &str = "
    array_append array_cat array_dims array_fill array_larger array_length array_lower array_ndims
    array_position array_positions array_prepend array_remove array_replace array_reverse
    array_smaller array_sort array_to_string array_upper arraycontains arrayoverlap cardinality
    datemultirange daterange generate_series generate_subscripts int4multirange int4range
    int8multirange int8range isempty lower_inc lower_inf multirange num_nonnulls num_nulls
    nummultirange numrange range_merge trim_array tsmultirange tsrange tstzmultirange tstzrange
    unnest upper_inc upper_inf";

const SEARCH_AND_HASHES: &str = "
    array_to_tsvector hash_array hash_array_extended hash_numeric hash_numeric_extended hash_record
    hash_record_extended hashbpchar hashfloat8 hashint2 hashint4 hashint4extended hashint8
    hashint8extended hashtext hashtextextended json_to_tsvector jsonb_hash jsonb_hash_extended
    jsonb_to_tsvector numnode phraseto_tsquery plainto_tsquery querytree setweight strip
    timestamp_hash to_tsquery to_tsvector ts_delete ts_filter ts_headline ts_rank ts_rank_cd
    tsquery_phrase tsvector_to_array uuid_hash uuid_hash_extended websearch_to_tsquery";

const NETWORK_AND_SHAPES: &str = "
    abbrev area bound_box box broadcast center circle diagonal diameter family height host hostmask inet_merge
    inet_same_family isclosed isopen line lseg masklen netmask network npoints path pclose point polygon
    popen radius set_masklen slope width";

/// A type's name called as a function is a cast.
const CASTS: &str = "
    bool cidr date float4 float8 int2 int4 int8 interval money numeric text time timestamp
    timestamptz varchar";

static ALLOWED: LazyLock<HashSet<&str>> = LazyLock::new(|| {
    let families = [
        AGGREGATES,
        WINDOWS,
        TEXT,
        TIME,
        NUMBERS,
        JSON,
        ARRAYS_AND_RANGES,
        SEARCH_AND_HASHES,
        NETWORK_AND_SHAPES,
        CASTS,
    ];
    families.iter().flat_map(|family| family.split_whitespace()).collect()
});

/// Names of functions that could be called as if they were a column, and must not be. A list of what
/// is denied, since any name may be a column's: the plan's own function list is looked at behind it. What `normalize`
/// would do is not seen in an attribute.
const RISKY_PREFIXES: &[&str] =
    &["pg_", "lo_", "binary_upgrade_", "brin_", "gin_", "txid_", "to_reg", "xml_"];
#[rustfmt::skip]
const RISKY_NAMES: &[&str] = &[
    "aclexplode", "aclitemin", "amvalidate", "current_schemas", "current_setting", "currval", "fmgr_c_validator",
    "fmgr_internal_validator", "fmgr_sql_validator", "hash_aclitem", "is_normalized", "mxid_age", "nextval", "normalize",
    "obj_description", "oidvectortypes", "plpgsql_validator", "row_security_active", "setseed", "ts_debug", "ts_stat",
    "ts_token_type", "xml", "xmlcomment",
];
/// Types that look names up: they are called by their names, and by those of their functions.
#[rustfmt::skip]
const LOOKING_UP: &[&str] = &[
    "regclass", "regcollation", "regconfig", "regdatabase", "regdictionary", "regnamespace", "regoper", "regoperator", "regproc",
    "regprocedure", "regrole", "regtype",
];

pub(crate) fn is_allowed(name: &str) -> bool {
    ALLOWED.contains(name)
}

pub(crate) fn is_risky_attribute(name: &str) -> bool {
    let is_of = |looking_up: &&str| {
        name.strip_prefix(*looking_up).is_some_and(|rest| ["", "in", "out", "recv", "send"].contains(&rest))
    };
    RISKY_NAMES.contains(&name)
        || RISKY_PREFIXES.iter().any(|prefix| name.starts_with(prefix))
        || LOOKING_UP.iter().any(is_of)
}

#[cfg(test)]
mod tests {
    use vitrina_testbed::Database;

    use super::*;

    #[tokio::test(flavor = "multi_thread")]
    async fn no_allowed_function_is_volatile() {
        let database = Database::fresh().await;
        let volatile = database
            .texts(
                "select distinct proname from pg_proc
                 where pronamespace = 'pg_catalog'::regnamespace and provolatile = 'v'",
            )
            .await;
        let allowed: Vec<_> =
            volatile.iter().filter_map(|row| row[0].as_deref()).filter(|name| is_allowed(name)).collect();
        assert_eq!(allowed, Vec::<&str>::new());
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn a_volatile_function_of_one_argument_is_no_attribute() {
        let database = Database::fresh().await;
        let volatile = database
            .texts(
                "select distinct proname from pg_proc
                 where pronamespace = 'pg_catalog'::regnamespace and provolatile = 'v'
                   and pronargs >= 1 and pronargs - pronargdefaults <= 1
                   and 'internal'::regtype <> all (proargtypes::oid[]) and proname !~ '^(amvalidate|plpgsql_.*)$'",
            )
            .await;
        let missed: Vec<_> = volatile
            .iter()
            .filter_map(|row| row[0].as_deref())
            .filter(|name| !is_risky_attribute(name))
            .collect();
        assert_eq!(missed, Vec::<&str>::new());
    }

    /// The plan does not show what stands in VALUES and LIMIT: there the names alone are looked at. Who looks something up by a
    /// number or a name takes an oid, or answers with rows or a name.
    #[tokio::test(flavor = "multi_thread")]
    async fn a_function_of_one_argument_that_looks_something_up_is_no_attribute() {
        const HARMLESS: &str = " aclitemout age btequalimage btvarstrequalimage hashoid hashoidvector oid oidin oidlarger oidout oidsend oidsmaller oidvectorin oidvectorout
            oidvectorout oidvectorsend pg_lsn unnest ";
        let database = Database::fresh().await;
        let looking = database
            .texts(
                "select distinct proname from pg_proc p
                  where pronamespace = 'pg_catalog'::regnamespace and prokind = 'f'
                    and pronargs >= 1 and pronargs - pronargdefaults <= 1 and 'internal'::regtype <> all (proargtypes::oid[])
                    and (proretset or exists (select from unnest(proargtypes::oid[] || prorettype) t
                          where format_type(t, null) ~ '^(oid|oidvector|xml|aclitem|aclitem\\[\\]|reg[a-z]+)$'))",
            )
            .await;
        let looking = looking.iter().filter_map(|row| row[0].as_deref());
        let missed: Vec<_> = looking
            .filter(|name| {
                !is_allowed(name) && !is_risky_attribute(name) && !HARMLESS.contains(&format!(" {name} "))
            })
            .collect();
        assert_eq!(missed, Vec::<&str>::new());
    }
}
