"""Functions of Arrow batches, polars and pandas frames: what comes back is one plain record batch."""

import datetime

import conftest
import pyarrow as pa
import pytest

FRAMES = ["pyarrow.RecordBatch", "polars.DataFrame", "pandas.DataFrame"]
UUID = pa.binary(16)
INTERVAL = pa.month_day_nano_interval()

EVERY_TYPE = {
    "boolean": pa.array([True, None]),
    "smallint": pa.array([-32768, None], pa.int16()),
    "integer": pa.array([1, None], pa.int32()),
    "bigint": pa.array([2**62 + 1, None], pa.int64()),
    "real": pa.array([1.5, None], pa.float32()),
    "double": pa.array([0.1, None], pa.float64()),
    "numeric": pa.array(["12345678901234567890.10", None]),
    "text": pa.array(["Ünï\0", None]),
    "bytea": pa.array([b"\x00\xff", None], pa.binary()),
    "date": pa.array([19000, None], pa.date32()),
    "time": pa.array([1, None], pa.time64("us")),
    "timestamp": pa.array([1, None], pa.timestamp("us")),
    "timestamptz": pa.array([1, None], pa.timestamp("us", tz="UTC")),
    "interval": pa.array([(14, 3, 14706700000000), None], INTERVAL),
    "uuid": pa.array([b"0123456789abcdef", None], UUID),
    "texts": pa.array([["a", None], None], pa.list_(pa.string())),
    "uuids": pa.array([[b"0123456789abcdef", None], None], pa.list_(UUID)),
    "intervals": pa.array([[(0, -1, 0), None], None], pa.list_(INTERVAL)),
    "empties": pa.array([[], None], pa.list_(pa.int32())),
    "nothing": pa.nulls(2),
}


def _batch(columns, metadata=True):
    fields = [
        pa.field(name, column.type, metadata={"pg_oid": str(number)} if metadata else None)
        for number, (name, column) in enumerate(columns.items(), 16)
    ]
    return pa.RecordBatch.from_arrays(list(columns.values()), schema=pa.schema(fields))


def _start(workshop, frame, body, decorator="@transform"):
    # A worker imports only what it needs: these libraries take their time.
    needed = [name for name in ("numpy", "pandas", "polars") if name in frame + body]
    return workshop.ready(f'''
import {", ".join(["datetime", "decimal", "uuid", *needed])}
import pyarrow, pyarrow as pa
from vitrina import transform, Context, Reject

{decorator}
def change(batch: {frame}, context):
    {body}
''')


def _one(answer):
    header, batches = answer
    assert "done" in header, header
    assert len(batches) <= 1
    return header["done"], batches[0] if batches else None


@pytest.mark.parametrize("frame", FRAMES)
def every_type_goes_back_as_it_came_with_its_metadata(workshop, frame):
    runner = _start(workshop, frame, f"assert type(batch) is {frame}; return batch")
    batch = _batch(EVERY_TYPE)
    done, result = _one(runner.arrow("change", batch))
    assert result.schema.equals(batch.schema, check_metadata=True), result.schema
    assert result.equals(batch)
    assert done == {"rejects": []}


@pytest.mark.parametrize("frame", FRAMES)
def an_empty_batch_is_still_a_call(workshop, frame):
    runner = _start(workshop, frame, "print('called'); return batch")
    header, batches = runner.arrow("change", _batch(EVERY_TYPE).slice(0, 0))
    assert "done" in header and sum(batch.num_rows for batch in batches) == 0
    assert runner.printed() == "called\n"


@pytest.mark.parametrize("frame", FRAMES)
@pytest.mark.parametrize("other", ["pa.record_batch({'a': [2]})", "pa.table({'a': [2]})", "polars.DataFrame({'a': [2]})", "pandas.DataFrame({'a': [2]}, index=[9])"])
def any_arrow_type_may_be_returned(workshop, frame, other):
    _, result = _one(_start(workshop, frame, f"return {other}").arrow("change", _batch({"a": pa.array([1])})))
    assert result.to_pydict() == {"a": [2]}
    assert result.schema.names == ["a"]


NANOSECONDS = 1_700_000_000_123_456_789


@pytest.mark.parametrize(("array", "expected", "value"), [
    ("['a'], pa.large_string()", pa.string(), "a"),
    ("['a'], pa.string_view()", pa.string(), "a"),
    ("[b'a'], pa.large_binary()", pa.binary(), b"a"),
    ("[b'a'], pa.binary_view()", pa.binary(), b"a"),
    ("[b'abc'], pa.binary(3)", pa.binary(), b"abc"),
    ("[['a']], pa.large_list(pa.large_string())", pa.list_(pa.string()), ["a"]),
    ("[['a']], pa.list_(pa.string(), 1)", pa.list_(pa.string()), ["a"]),
    ("[1], pa.timestamp('s')", pa.timestamp("us"), datetime.datetime(1970, 1, 1, 0, 0, 1)),
    ("[1], pa.timestamp('ms', tz='Europe/Berlin')", pa.timestamp("us", tz="UTC"), datetime.datetime(1970, 1, 1, 0, 0, 0, 1000, datetime.timezone.utc)),
    (f"[{NANOSECONDS}], pa.timestamp('ns')", pa.timestamp("us"), datetime.datetime(2023, 11, 14, 22, 13, 20, 123456)),
    ("['a', 'a'], pa.dictionary(pa.int8(), pa.large_string())", pa.string(), "a"),
    ("[decimal.Decimal('1.50')], pa.decimal128(9, 2)", pa.string(), "1.50"),
    ("[decimal.Decimal('0.000000000100')], pa.decimal256(50, 12)", pa.string(), "0.000000000100"),
    ("[[decimal.Decimal('1.50'), None]], pa.list_(pa.decimal128(9, 2))", pa.list_(pa.string()), ["1.50", None]),
    ("[-128], pa.int8()", pa.int16(), -128),
    ("[255], pa.uint8()", pa.int16(), 255),
    ("[65535], pa.uint16()", pa.int32(), 65535),
    ("[4294967295], pa.uint32()", pa.int64(), 4294967295),
    ("[7], pa.uint64()", pa.int64(), 7),
    ("[True], pa.bool_()", pa.bool_(), True),
    ("[None], pa.null()", pa.null(), None),
    ("[1.5], pa.float16()", pa.float32(), 1.5),
    ("[datetime.date(2024, 5, 1)], pa.date64()", pa.date32(), datetime.date(2024, 5, 1)),
    ("[1], pa.time32('s')", pa.time64("us"), datetime.time(0, 0, 1)),
    ("[1500], pa.duration('ms')", INTERVAL, (0, 0, 1_500_000_000)),
    ("[uuid.UUID(int=1).bytes], pa.uuid()", UUID, bytes(15) + b"\x01"),
])
def every_shape_a_library_makes_becomes_a_plain_type(workshop, array, expected, value):
    runner = _start(workshop, "pyarrow.RecordBatch", f"return pa.record_batch({{'new': pa.array({array})}})")
    _, result = _one(runner.arrow("change", _batch({"a": pa.array([1])})))
    assert result.schema.field("new").type == expected
    assert result.column("new")[0].as_py() == value


@pytest.mark.parametrize(("array", "words"), [
    ("[2**63], pa.uint64()", "is uint64, and holds values that int64 does not"),
    ("[{'x': 1}]", "which has no Postgres type; hint: write it as JSON text"),
    ("[[[1]]]", "which has no Postgres type"),
])
def a_column_that_postgres_cannot_hold_is_an_error_of_the_contract(workshop, array, words):
    runner = _start(workshop, "pyarrow.RecordBatch", f"return pa.record_batch({{'new': pa.array({array})}})")
    error = runner.arrow("change", _batch({"a": pa.array([1])}))[0]["error"]
    assert error["kind"] == "contract" and 'column "new"' in error["message"] and words in error["message"]


def pandas_integers_with_nulls_stay_integers(workshop):
    runner = _start(workshop, "pandas.DataFrame", "batch['b'] = batch['a'] + 1; return batch[batch['a'].isna() | (batch['a'] > 1)]")
    _, result = _one(runner.arrow("change", _batch({"a": pa.array([1, None, 3], pa.int32())})))
    assert result.to_pydict() == {"a": [None, 3], "b": [None, 4]}
    assert result.schema.types == [pa.int32(), pa.int64()]


def pandas_values_of_several_types_are_an_error_that_names_the_column(workshop):
    runner = _start(workshop, "pandas.DataFrame", "batch['b'] = [1, 'secret']; return batch")
    error = runner.arrow("change", _batch({"a": pa.array([1, 2])}))[0]["error"]
    assert error["kind"] == "contract" and 'column "b"' in error["message"] and "secret" not in error["message"]


@pytest.mark.parametrize(("returned", "words"), [
    ("None", "returned NoneType, not pyarrow.RecordBatch, polars.DataFrame or pandas.DataFrame"),
    ("[{'a': 1}]", "returned list"),
    ("polars.LazyFrame({'a': [1]})", "hint: call .collect()"),
    ("pa.RecordBatch.from_arrays([pa.array([1])] * 2, names=['a', 'a'])", "two returned columns are named a"),
    ("pandas.DataFrame({1: [1]})", "named by int"),
])
def a_result_that_is_no_batch_is_an_error_of_the_contract(workshop, returned, words):
    runner = _start(workshop, "pyarrow.RecordBatch", f"return {returned}")
    error = runner.arrow("change", _batch({"a": pa.array([1])}))[0]["error"]
    assert error["kind"] == "contract" and words in error["message"]


REJECTIONS = {
    "2": [2],
    "numpy.int64(2)": [2],
    "[2, 0]": [0, 2],
    "[]": [],
    "[True, None, False, True]": [0, 3],
    "pa.array([False, False, None, True])": [3],
    "polars.Series([False, True, None, False])": [1],
    "pandas.Series([False, True, False, False])": [1],
    "pandas.Series([None, True, False, False], dtype='boolean')": [1],
    "numpy.array([False, True, False, True])": [1, 3],
    "numpy.array([3])": [3],
}


@pytest.mark.parametrize("frame", FRAMES)
def rows_are_refused_by_index_indices_or_mask_and_filtered_from_the_very_batch(workshop, frame):
    choices = ", ".join(REJECTIONS)
    runner = _start(workshop, frame, f"context.reject(({choices})[context.batch], 'why', code='a.b'); return batch")
    batch = _batch({"a": pa.array([10, 11, 12, 13])})
    for number, expected in enumerate(REJECTIONS.values()):
        call = runner.call("change", {"a": "bigint"})
        call["context"]["batch"] = number
        header, body = runner.ask(call, conftest.ipc(batch))
        assert header["done"]["rejects"] == [{"row": row, "code": "a.b", "message": "why"} for row in expected]
        left = pa.ipc.open_stream(body).read_all().column("a").to_pylist()
        assert left == [10 + row for row in range(4) if row not in expected]


def a_frame_that_was_sorted_in_place_loses_the_refused_rows_and_no_others(workshop):
    body = "context.reject(0, 'why'); batch.sort_values('a', inplace=True); return batch"
    _, result = _one(_start(workshop, "pandas.DataFrame", body).arrow("change", _batch({"a": pa.array([3, 1, 2])})))
    assert result.to_pydict() == {"a": [1, 2]}


@pytest.mark.parametrize("what", ["4", "-1", "[0, 9]", "[True]", "'a'", "True", "None", "1.5"])
def a_refusal_that_fits_no_row_is_an_error_of_the_contract(workshop, what):
    runner = _start(workshop, "pyarrow.RecordBatch", f"context.reject({what}, 'why'); return batch")
    error = runner.arrow("change", _batch({"a": pa.array([1, 2, 3, 4])}))[0]["error"]
    assert error["kind"] == "contract", error


def a_uuid_that_is_no_longer_one_stays_binary(workshop):
    body = "return batch.with_columns(id=polars.lit(b'short'))"
    _, result = _one(_start(workshop, "polars.DataFrame", body).arrow("change", _batch({"id": EVERY_TYPE["uuid"]})))
    assert result.schema.field("id").type == pa.binary() and result.schema.field("id").metadata is None


def a_column_of_another_type_loses_its_metadata(workshop):
    body = "return batch.with_columns(a=polars.col('a').cast(polars.String))"
    _, result = _one(_start(workshop, "polars.DataFrame", body).arrow("change", _batch({"a": pa.array([1]), "b": pa.array([2])})))
    assert result.schema.field("a").metadata is None
    assert result.schema.field("b").metadata == {b"pg_oid": b"17"}


def a_declared_output_is_checked_and_says_its_postgres_type(workshop):
    decorator = "@transform(output={'facts': 'jsonb', 'id': 'uuid', 'none': 'date', 'tags': 'integer[]'})"
    body = "return polars.DataFrame({'facts': ['{}'], 'id': [b'0123456789abcdef'], 'none': [None], 'tags': [[]]})"
    _, result = _one(_start(workshop, "polars.DataFrame", body, decorator).arrow("change", _batch({"a": pa.array([1])})))
    assert result.schema.types == [pa.string(), UUID, pa.date32(), pa.list_(pa.int32())]
    assert [field.metadata[b"pg_oid"] for field in result.schema] == [b"3802", b"2950", b"1082", b"1007"]


@pytest.mark.parametrize(("body", "words"), [
    ("return batch", "declared columns did not come back: b; returned are a"),
    ("return pa.record_batch({'b': ['x']})", 'column "b" is declared integer (int32) and came back as string'),
])
def a_declared_output_that_does_not_come_back_is_an_error_of_the_contract(workshop, body, words):
    runner = _start(workshop, "pyarrow.RecordBatch", body, "@transform(output={'b': 'integer'})")
    error = runner.arrow("change", _batch({"a": pa.array([1])}))[0]["error"]
    assert error["kind"] == "contract" and words in error["message"]


def a_raised_reject_in_an_arrow_function_is_an_error_of_the_contract(workshop):
    runner = _start(workshop, "pyarrow.RecordBatch", "raise Reject('why')")
    assert runner.arrow("change", _batch({"a": pa.array([1])}))[0]["error"]["kind"] == "contract"


def a_result_in_many_pieces_goes_back_as_one_batch(workshop):
    body = "return polars.concat([batch, batch, batch], rechunk=False)"
    _, result = _one(_start(workshop, "polars.DataFrame", body).arrow("change", _batch(EVERY_TYPE)))
    assert result.num_rows == 6


def a_stream_of_no_batch_or_of_several_is_read_whole(workshop):
    runner = _start(workshop, "pyarrow.RecordBatch", "return batch")
    batch = _batch(EVERY_TYPE)
    for count in (0, 2):
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, batch.schema) as stream:
            for _ in range(count):
                stream.write_batch(batch)
        header, body = runner.ask(runner.call("change", {"text": "text"}), sink.getvalue().to_pybytes())
        assert "done" in header
        assert pa.ipc.open_stream(body).read_all().num_rows == 2 * count


def a_not_a_number_stays_what_it_is(workshop):
    for frame in FRAMES:
        _, result = _one(_start(workshop, frame, "return batch").arrow("change", _batch({"a": pa.array([float("nan"), None])})))
        assert str(result.column("a").to_pylist()) == "[nan, None]", frame


