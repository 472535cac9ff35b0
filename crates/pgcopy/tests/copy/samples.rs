//! Arrow values of every kind that a server would take and give back unchanged.

use std::sync::Arc;

use arrow_array::types::IntervalMonthDayNanoType;
use arrow_array::{
    ArrayRef, BinaryArray, BooleanArray, Date32Array, FixedSizeBinaryArray, Float32Array, Float64Array,
    Int16Array, Int32Array, Int64Array, ListArray, PrimitiveArray, RecordBatch, StringArray,
    Time64MicrosecondArray, TimestampMicrosecondArray,
};
use arrow_buffer::{IntervalMonthDayNano, NullBuffer, OffsetBuffer};
use arrow_schema::Field;
use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;
use vitrina_pgcopy::{Column, Scalar, arrow_schema};

/// Every scalar with the oid of its array.
pub(crate) const SCALARS: [(Scalar, u32); 20] = [
    (Scalar::Bool, 1000),
    (Scalar::Int2, 1005),
    (Scalar::Int4, 1007),
    (Scalar::Int8, 1016),
    (Scalar::Float4, 1021),
    (Scalar::Float8, 1022),
    (Scalar::Numeric, 1231),
    (Scalar::Text, 1009),
    (Scalar::Varchar, 1015),
    (Scalar::Bpchar, 1014),
    (Scalar::Name, 1003),
    (Scalar::Bytea, 1001),
    (Scalar::Date, 1182),
    (Scalar::Time, 1183),
    (Scalar::Timestamp, 1115),
    (Scalar::Timestamptz, 1185),
    (Scalar::Interval, 1187),
    (Scalar::Uuid, 2951),
    (Scalar::Json, 199),
    (Scalar::Jsonb, 3807),
];

/// One column of every scalar, then one array of each.
pub(crate) fn columns() -> Vec<Column> {
    let scalars = SCALARS.map(|(scalar, _)| scalar.oid());
    let arrays = SCALARS.map(|(_, array)| array);
    scalars.into_iter().chain(arrays).map(|oid| Column::new(format!("of_{oid}"), oid)).collect()
}

/// Rows of every kind, a fraction of the values NULL, inside of arrays too.
pub(crate) fn batches() -> impl Strategy<Value = RecordBatch> {
    (0..8_usize).prop_flat_map(|rows| {
        let scalars: Vec<_> = SCALARS.iter().map(|(scalar, _)| values(*scalar, rows)).collect();
        let arrays: Vec<_> = SCALARS.iter().map(|(scalar, _)| arrays(*scalar, rows)).collect();
        (scalars, arrays).prop_map(|(scalars, arrays)| {
            let all = scalars.into_iter().chain(arrays).collect();
            RecordBatch::try_new(arrow_schema(&columns()), all).expect("one array a column")
        })
    })
}

fn arrays(element: Scalar, rows: usize) -> BoxedStrategy<ArrayRef> {
    let lengths = vec(option::weighted(0.8, 0..4_usize), rows);
    let list = move |lengths: Vec<Option<usize>>| {
        let nulls: NullBuffer = lengths.iter().map(Option::is_some).collect();
        let lengths: Vec<_> = lengths.into_iter().map(Option::unwrap_or_default).collect();
        values(element, lengths.iter().sum()).prop_map(move |items| {
            let field = Arc::new(Field::new_list_field(element.arrow_type(), true));
            let offsets = OffsetBuffer::from_lengths(lengths.iter().copied());
            Arc::new(ListArray::new(field, offsets, items, Some(nulls.clone()))) as ArrayRef
        })
    };
    lengths.prop_flat_map(list).boxed()
}

fn values(scalar: Scalar, rows: usize) -> BoxedStrategy<ArrayRef> {
    let text = |values| Arc::new(StringArray::from_iter(values)) as ArrayRef;
    match scalar {
        Scalar::Bool => array(rows, any::<bool>(), |values| Arc::new(BooleanArray::from(values))),
        Scalar::Int2 => array(rows, any::<i16>(), |values| Arc::new(Int16Array::from(values))),
        Scalar::Int4 => array(rows, any::<i32>(), |values| Arc::new(Int32Array::from(values))),
        Scalar::Int8 => array(rows, any::<i64>(), |values| Arc::new(Int64Array::from(values))),
        Scalar::Float4 => {
            array(rows, any::<u32>().prop_map(f32::from_bits), |values| Arc::new(Float32Array::from(values)))
        }
        Scalar::Float8 => {
            array(rows, any::<u64>().prop_map(f64::from_bits), |values| Arc::new(Float64Array::from(values)))
        }
        Scalar::Numeric => array(rows, numerics(), text),
        Scalar::Text | Scalar::Varchar | Scalar::Bpchar | Scalar::Name => array(rows, "[^\0]{0,12}", text),
        Scalar::Bytea => {
            array(rows, vec(any::<u8>(), 0..24), |values| Arc::new(BinaryArray::from_iter(values)))
        }
        Scalar::Date => array(rows, dates(), |values| Arc::new(Date32Array::from(values))),
        Scalar::Time => {
            array(rows, 0..=86_400_000_000_i64, |values| Arc::new(Time64MicrosecondArray::from(values)))
        }
        Scalar::Timestamp => {
            array(rows, timestamps(), |values| Arc::new(TimestampMicrosecondArray::from(values)))
        }
        Scalar::Timestamptz => array(rows, timestamps(), |values| {
            Arc::new(TimestampMicrosecondArray::from(values).with_timezone("UTC"))
        }),
        Scalar::Interval => array(rows, intervals(), |values| {
            Arc::new(PrimitiveArray::<IntervalMonthDayNanoType>::from(values))
        }),
        Scalar::Uuid => array(rows, any::<[u8; 16]>(), |values| {
            let values = values.into_iter();
            Arc::new(FixedSizeBinaryArray::try_from_sparse_iter_with_size(values, 16).expect("16 bytes each"))
        }),
        Scalar::Json => array(rows, json(), text),
        Scalar::Jsonb => array(rows, json(), text),
    }
}

fn array<S: Strategy + 'static>(
    rows: usize,
    values: S,
    build: impl Fn(Vec<Option<S::Value>>) -> ArrayRef + 'static,
) -> BoxedStrategy<ArrayRef> {
    vec(option::weighted(0.8, values), rows).prop_map(build).boxed()
}

/// As Postgres writes them, some of them long.
pub(crate) fn numerics() -> impl Strategy<Value = String> {
    let special = prop_oneof![Just("NaN"), Just("Infinity"), Just("-Infinity"), Just("0"), Just("0.000")];
    prop_oneof![
        8 => "-?[1-9][0-9]{0,30}(\\.[0-9]{1,30})?",
        4 => "-?0\\.0{0,12}[1-9]0{0,12}",
        2 => "[1-9]0{0,40}",
        2 => special.prop_map(str::to_owned),
        1 => (0..3000_usize, 1..3000_usize).prop_map(|(whole, scale)| {
            format!("-7{}.{}", "0123456789".repeat(whole / 10), "9".repeat(scale))
        }),
    ]
}

/// All that Postgres can count, infinities often.
fn dates() -> impl Strategy<Value = i32> {
    prop_oneof![Just(i32::MIN), Just(i32::MAX), -2_440_588..2_145_042_906]
}

/// All that both sides can count.
fn timestamps() -> impl Strategy<Value = i64> {
    prop_oneof![Just(i64::MIN), Just(i64::MAX), -210_866_803_200_000_000..i64::MAX]
}

fn intervals() -> impl Strategy<Value = IntervalMonthDayNano> {
    let microseconds = i64::MIN / 1000..=i64::MAX / 1000;
    (any::<i32>(), any::<i32>(), microseconds)
        .prop_map(|(months, days, us)| IntervalMonthDayNano::new(months, days, us * 1000))
}

/// As `jsonb` writes it, so that it comes back unchanged.
pub(crate) fn json() -> impl Strategy<Value = String> {
    let leaf = prop_oneof![
        Just("null".to_owned()),
        any::<bool>().prop_map(|flag| flag.to_string()),
        any::<i64>().prop_map(|number| number.to_string()),
        "-?[1-9][0-9]{0,5}\\.[0-9]{1,9}",
        "\"[^\0-\u{1f}\"\\\\]{0,8}\"",
    ];
    leaf.prop_recursive(2, 8, 3, |inner| {
        let list = vec(inner.clone(), 0..3).prop_map(|items| format!("[{}]", items.join(", ")));
        let object = inner.prop_map(|value| format!("{{\"ключ 🎬\": {value}}}"));
        prop_oneof![list, object]
    })
}
