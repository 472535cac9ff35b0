//! The sizes of what functions return, and the work of those that no timeout ends: each was called on a real server with
//! large values, with a timeout that did not end it.

use serde_json::Value;

use super::expressions::{DIGITS_DIVIDED, MAX_DIGITS, multiplied, pairs, power};
use super::scope::{Scope, list};
use super::{STORED, Size, UNBOUNDED, Work, sum};
use crate::rules::names;

/// As large as the rows make them.
const GATHERING: &str = "
    array_agg json_agg json_agg_strict json_object_agg json_object_agg_strict json_object_agg_unique
    json_object_agg_unique_strict jsonb_agg jsonb_agg_strict jsonb_object_agg jsonb_object_agg_strict
    jsonb_object_agg_unique jsonb_object_agg_unique_strict range_agg string_agg";

/// Numbers, dates, hashes: as short as a value of a table.
const SHORT: &str = "
    abbrev age area array_dims array_length array_lower array_ndims array_position array_upper
    arraycontains arrayoverlap ascii avg bit_and bit_count bit_length bool_and bool_or bound_box box
    broadcast cardinality center char_length character_length chr circle corr count covar_pop covar_samp
    crc32 crc32c cume_dist date date_add date_bin date_part date_subtract date_trunc daterange
    dense_rank diameter every exp extract float4 float8 get_bit get_byte grouping hash_array hashtext
    height host hostmask int2 int4 int4range int8 int8range interval is_normalized isclosed isempty
    isfinite isopen json_array_length json_typeof jsonb_array_length jsonb_contains jsonb_exists
    jsonb_exists_all jsonb_exists_any jsonb_hash jsonb_path_exists jsonb_path_exists_tz jsonb_path_match
    jsonb_path_match_tz jsonb_typeof justify_days justify_hours justify_interval length line ln log
    log10 lower_inc lower_inf lseg make_date make_interval make_time make_timestamp make_timestamptz
    masklen md5 money netmask network now npoints ntile num_nonnulls num_nulls numnode numrange
    octet_length overlaps percent_rank pg_size_pretty pg_typeof point position radius rank regexp_count
    regexp_instr regexp_like regr_avgx regr_avgy regr_count regr_intercept regr_r2 regr_slope regr_sxx
    regr_sxy regr_syy row_number sha224 sha256 sha384 sha512 slope sqrt starts_with statement_timestamp
    stddev stddev_pop stddev_samp strpos time timestamp timestamptz timezone to_bin to_date to_hex
    to_oct to_timestamp transaction_timestamp ts_rank ts_rank_cd tsrange tstzrange var_pop var_samp
    variance width width_bucket";

/// Not longer than the longest argument.
const NO_LONGER: &str = "
    abs any_value array_larger array_positions array_remove array_reverse array_smaller array_sort btrim
    ceil ceiling div first_value floor gcd json_array_elements json_array_elements_text json_each
    json_each_text json_extract_path json_extract_path_text json_object_keys json_strip_nulls
    jsonb_array_elements jsonb_array_elements_text jsonb_delete jsonb_delete_path jsonb_each
    jsonb_each_text jsonb_extract_path jsonb_extract_path_text jsonb_object_keys jsonb_path_query
    jsonb_path_query_first jsonb_strip_nulls lag last_value lead left lower ltrim max min mod mode
    nth_value percentile_cont percentile_disc range_intersect_agg regexp_match regexp_matches
    regexp_split_to_array regexp_split_to_table regexp_substr reverse right round rtrim scale sign
    split_part string_to_array string_to_table strip substr substring sum translate trim_array
    trim_scale trunc ts_delete ts_filter unnest upper";

/// They return rows, or one value for many: the planner calls none.
const OF_ROWS: &str = "
    generate_series generate_subscripts json_array_elements json_array_elements_text json_each
    json_each_text json_object_keys json_populate_recordset json_to_recordset jsonb_array_elements
    jsonb_array_elements_text jsonb_each jsonb_each_text jsonb_object_keys jsonb_path_query
    jsonb_populate_recordset jsonb_to_recordset max min mode percentile_cont percentile_disc
    range_intersect_agg regexp_matches regexp_split_to_table string_to_table sum unnest";

/// They look at every element of one argument for each of the other.
const PAIRING: &str = "
    arraycontains arrayoverlap btrim jsonb_contains jsonb_delete jsonb_exists_all jsonb_exists_any ltrim
    position replace rtrim setweight split_part string_to_array string_to_table strpos translate
    ts_delete ts_filter";

/// They read a text as a query of words, and each word looks at those before it.
const QUERIES: &str = "
    phraseto_tsquery plainto_tsquery to_tsquery websearch_to_tsquery";

/// Of numbers of three thousand digits.
const STEPS_OF_A_SERIES: u64 = 1_000_000;
const NORMALIZE: &str = "bound the text: normalize(left(x, 1000))";
const QUERY: &str = "bound the text, such as left(x, 1000)";
const PATH: &str = "compare in the query what the path gives, or keep the document short";
const PAIRS: &str =
    "keep one argument short: a constant, or a column of a table; bound texts, such as left(x, 1000)";

impl Work<'_> {
    pub(super) fn call(&mut self, call: &Value, scope: &Scope, at: usize) -> Size {
        let name = names(&call["funcname"]).last().copied().unwrap_or_default();
        let arguments = self.each(&call["args"], scope, at);
        let beside =
            ["agg_order", "agg_filter", "over"].map(|field| self.expressions(&call[field], scope, at));
        let size = self.called(name, &arguments, call, at);
        Size { steps: size.steps.saturating_add(sum(&beside).steps), ..size }
    }

    /// `call` is null where it is written as an attribute.
    pub(super) fn called(&mut self, name: &str, arguments: &[Size], call: &Value, at: usize) -> Size {
        let all = sum(arguments);
        let varies =
            all.varies || is_one_of(OF_ROWS, name) || is_one_of(GATHERING, name) || !call["over"].is_null();
        let bytes = bytes_of(name, call, arguments);
        let steps = self.steps_of(name, arguments, bytes, call, at).saturating_add(all.bytes);
        let steps = steps.saturating_add(all.steps);
        let first = arguments.first();
        let element = match name {
            "array_agg" | "range_agg" => first.map(|size| size.bytes),
            _ => None,
        };
        let size = Size { bytes, steps, varies, number: None, is_literal: false, element };
        // However numbers are reckoned, they have no more digits.
        if bytes <= MAX_DIGITS
            && (is_one_of(NO_LONGER, name) || matches!(name, "power" | "factorial" | "lcm"))
        {
            return size;
        }
        self.built(name, size, at)
    }

    pub(super) fn steps_of(
        &mut self,
        name: &str,
        arguments: &[Size],
        bytes: u64,
        call: &Value,
        at: usize,
    ) -> u64 {
        let of = |place: usize| arguments.get(place).copied().unwrap_or(Size::constant(1));
        let digits = |size: Size| size.bytes.min(MAX_DIGITS);
        let squared = |size: Size| pairs(size, size);
        match name {
            "normalize" | "is_normalized" => self.work(name, squared(of(0)), NORMALIZE, at),
            "translate" => self.work(name, pairs(of(0), of(1)).saturating_mul(4), PAIRS, at),
            "mod" | "div" | "gcd" | "lcm" => digits(of(0)) * digits(of(1)) / DIGITS_DIVIDED,
            "sqrt" => multiplied(digits(of(0))) / 8,
            "power" | "factorial" => multiplied(bytes),
            "exp" => STEPS_OF_A_SERIES,
            "parse_ident" => self.work(name, squared(of(0)), PAIRS, at),
            "ts_headline" => {
                let longest =
                    arguments.iter().copied().max_by_key(|size| size.bytes).unwrap_or(Size::UNBOUNDED);
                self.work(name, squared(longest), QUERY, at)
            }
            // Each position of a word beside each of another, of 255 at most.
            "ts_rank" | "ts_rank_cd" => {
                let shorter =
                    arguments.iter().map(|size| size.bytes).rev().take(2).min().unwrap_or(UNBOUNDED);
                self.work(name, shorter.saturating_mul(shorter).saturating_mul(256), QUERY, at)
            }
            name if name.starts_with("jsonb_path_") && !is_plain_path(call) => {
                self.work(name, squared(of(0)), PATH, at)
            }
            name if is_one_of(QUERIES, name) => {
                self.work(name, squared(arguments.last().copied().unwrap_or(Size::UNBOUNDED)) / 4, QUERY, at)
            }
            name if is_one_of(PAIRING, name) => self.work(name, pairs(of(0), of(1)), PAIRS, at),
            _ => 0,
        }
    }
}

/// A path in the text that compares nothing, or with something that it says itself: `$.score > 5`.
fn is_plain_path(call: &Value) -> bool {
    const OF_COMPARISONS: [char; 3] = ['=', '<', '>'];
    let path = list(&call["args"]).get(1).map(|path| &path["node"]["AConst"]["val"]["Sval"]["sval"]);
    path.and_then(Value::as_str).filter(|path| path.matches("**").count() < 2).is_some_and(|path| {
        path.split(OF_COMPARISONS).skip(1).map(str::trim_start).all(|right| {
            right.is_empty()
                || right.starts_with(|c: char| c.is_ascii_digit() || matches!(c, '"' | '-'))
                || ["true", "false", "null"].iter().any(|word| right.starts_with(word))
        })
    })
}

fn is_one_of(names: &str, name: &str) -> bool {
    names.split_whitespace().any(|known| known == name)
}

fn bytes_of(name: &str, call: &Value, arguments: &[Size]) -> u64 {
    let of = |place: usize| arguments.get(place).copied().unwrap_or(Size::constant(1));
    let longest = arguments.iter().map(|size| size.bytes).max().unwrap_or(1);
    let all = sum(arguments).bytes;
    let varies = sum(arguments).varies;
    // Without a number of the text, as many as it may be.
    let counted = |place: usize| of(place).number.unwrap_or(u64::MAX);
    let bounded = |place: usize| of(place).number.map_or(u64::MAX, |count| count.saturating_mul(4));
    match name {
        "repeat" => of(0).bytes.saturating_mul(counted(1)),
        "lpad" | "rpad" => counted(1).saturating_mul(4),
        "left" | "right" => of(0).bytes.min(bounded(1)),
        "substr" | "substring" => of(0).bytes.min(bounded(2)),
        "array_fill" => of(0).bytes.max(4).saturating_mul(elements(list(&call["args"]).get(1))),
        "polygon" if arguments.len() == 2 => counted(0).saturating_mul(16),
        "format" => formatted(call, arguments, all, varies),
        "replace" => of(0).bytes.saturating_mul(
            if of(1).is_literal { of(2).bytes.div_ceil(of(1).bytes) } else { of(2).bytes }.max(1),
        ),
        "regexp_replace" => of(0).bytes.saturating_mul(of(2).bytes.saturating_add(1)),
        "array_to_string" => of(0).bytes.saturating_mul(
            1 + of(1).bytes.saturating_add(if arguments.len() > 2 { of(2).bytes } else { 0 }) / 4,
        ),
        "concat" => all.saturating_mul(2),
        "concat_ws" => {
            all.saturating_mul(2).saturating_add(of(0).bytes.saturating_mul(arguments.len() as u64))
        }
        "power" => power(of(0), of(1)),
        "factorial" => of(0).number.filter(|number| *number < 1_000).map_or(MAX_DIGITS, |number| number * 3),
        "lcm" => all.min(MAX_DIGITS),
        "path" | "pclose" | "popen" => all.max(STORED + 1),
        "generate_series" | "generate_subscripts" => STORED,
        "to_tsvector" | "array_to_tsvector" | "array_cat" | "array_append" | "array_prepend"
        | "jsonb_concat" | "jsonb_set" | "jsonb_set_lax" | "jsonb_insert" | "overlay" | "initcap"
        | "convert_from" | "convert_to" | "decode" => all,
        // Each level is indented further than the one around it.
        "jsonb_pretty" => all.saturating_mul(all).saturating_mul(2),
        // What stands around each word that is found.
        "ts_headline" => all.saturating_mul(of(arguments.len().saturating_sub(1)).bytes.saturating_add(1)),
        // Names of months, as often as the format has one.
        "to_char" => all.saturating_mul(16),
        "encode" => all.saturating_mul(4),
        "unnest" if arguments.len() == 1 => of(0).element.unwrap_or(longest),
        name if is_one_of(GATHERING, name) => UNBOUNDED,
        name if is_one_of(SHORT, name) => STORED,
        name if is_one_of(NO_LONGER, name) => longest,
        // Escapes and quotes, of which there may be six for a character.
        "to_json" | "to_jsonb" | "row_to_json" | "array_to_json" => all.saturating_mul(6),
        _ => all.saturating_mul(2),
    }
}

/// `array[3, 4]`
fn elements(dimensions: Option<&Value>) -> u64 {
    let dimensions = dimensions.map_or(&[][..], |array| list(&array["node"]["AArrayExpr"]["elements"]));
    let number = |dimension: &Value| dimension["node"]["AConst"]["val"]["Ival"]["ival"].as_u64();
    let numbers: Option<Vec<u64>> = dimensions.iter().map(number).collect();
    numbers
        .filter(|numbers| !numbers.is_empty())
        .map_or(u64::MAX, |numbers| numbers.into_iter().fold(1, u64::saturating_mul))
}

/// A width may stand in the format, as in `%1000s`, and an argument be named many times.
fn formatted(call: &Value, arguments: &[Size], all: u64, varies: bool) -> u64 {
    let format = list(&call["args"]).first().map(|format| &format["node"]["AConst"]["val"]["Sval"]["sval"]);
    let Some(format) = format.and_then(Value::as_str).filter(|format| !format.contains('*')) else {
        return if varies { UNBOUNDED } else { u64::MAX };
    };
    let longest = arguments.iter().map(|size| size.bytes).max().unwrap_or(1);
    let widths = format
        .split(|c: char| !c.is_ascii_digit())
        .filter_map(|width| width.parse().ok())
        .fold(0, u64::saturating_add);
    let places = format.matches('%').count() as u64;
    // Quotes are doubled.
    let quoted = format.contains(['L', 'I']);
    let all = if quoted { all.saturating_mul(2).saturating_add(3 * places) } else { all };
    all.saturating_add(widths).saturating_add(if places > arguments.len() as u64 || format.contains('$') {
        places.saturating_mul(longest)
    } else {
        0
    })
}
