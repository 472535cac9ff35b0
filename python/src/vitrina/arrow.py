"""Batches as Arrow: from the pipe to what a function asks for, and back to one record batch.

Imported only where a function takes an Arrow batch: it needs pyarrow.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from . import arrow_types, intervals, postgres
from .errors import ContractError

RETURNABLE = "pyarrow.RecordBatch, polars.DataFrame or pandas.DataFrame"


def read(body: bytes | bytearray | memoryview) -> Any:
    with pa.ipc.open_stream(pa.py_buffer(body)) as stream:
        batches = list(stream)
        if len(batches) == 1:
            return batches[0]
        table = pa.Table.from_batches(batches, stream.schema)
        arrays = [column.combine_chunks() for column in table.columns]
        return pa.RecordBatch.from_arrays(arrays, schema=stream.schema)


def write(batch: Any) -> memoryview:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batch.schema) as stream:
        stream.write_batch(batch)
    return memoryview(sink.getvalue())


def given(batch: Any, type_name: str) -> Any:
    """The batch as the function asks for it."""
    if type_name == "polars.DataFrame":
        return _to_polars(batch)
    if type_name == "pandas.DataFrame":
        import pandas

        # Arrow's own types: numpy would make floats of integers with NULLs in them.
        return batch.to_pandas(types_mapper=pandas.ArrowDtype)
    return batch


def _to_polars(batch: Any) -> Any:
    import polars

    for index, field in enumerate(batch.schema):
        if "month_day_nano_interval" in str(field.type):
            # polars has no such type: it sees ISO 8601 text, which `restored` turns back.
            batch = batch.set_column(index, field.name, intervals.to_text(batch.column(index)))
    return polars.from_arrow(batch)


def returned(result: Any, before: Any, output: Mapping[str, str] | None) -> Any:
    """One record batch of plain types from whatever a function returned. `before` is the schema it
    was given, or None for a source."""
    table = _table(result)
    names = table.schema.names
    _check_names(names, output or {})
    known = {} if before is None else {field.name: field for field in before}
    arrays, fields = [], []
    for index, name in enumerate(names):
        array = arrow_types.plain(name, table.column(index))
        if name in known:
            array = arrow_types.restored(array, known[name].type)
        if output and name in output:
            array = arrow_types.declared(name, array, output[name])
        arrays.append(array)
        fields.append(_field(name, array.type, known.get(name), output or {}))
    return _batch(arrays, fields, table.num_rows)


def _batch(arrays: list[Any], fields: list[Any], count: int) -> Any:
    if not fields and count:
        raise ContractError("returned rows without columns")
    return pa.RecordBatch.from_arrays(arrays, schema=pa.schema(fields))


def _field(name: str, data_type: Any, before: Any, output: Mapping[str, str]) -> Any:
    field = pa.field(name, data_type)
    if name in output:
        # The runner tells jsonb and numeric from text by this.
        return field.with_metadata({"pg_oid": str(postgres.oid(output[name]))})
    if before is not None and before.type == data_type:
        return field.with_metadata(before.metadata) if before.metadata else field
    return field


def _check_names(names: list[str], output: Mapping[str, str]) -> None:
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise ContractError(f"two returned columns are named {', '.join(twice)}")
    missing = [name for name in output if name not in names]
    if missing:
        raise ContractError(f"declared columns did not come back: {', '.join(missing)}; returned are {', '.join(names)}")


def _table(result: Any) -> Any:
    """The result as something with Arrow columns. A library that is not loaded made nothing."""
    if isinstance(result, (pa.RecordBatch, pa.Table)):
        return result
    polars, pandas = sys.modules.get("polars"), sys.modules.get("pandas")
    if polars is not None and isinstance(result, polars.DataFrame):
        return result.to_arrow()
    if polars is not None and isinstance(result, polars.LazyFrame):
        raise ContractError("returned polars.LazyFrame; hint: call .collect()")
    if pandas is not None and isinstance(result, pandas.DataFrame):
        return _from_pandas(result)
    raise ContractError(f"returned {type(result).__name__}, not {RETURNABLE}")


def _from_pandas(frame: Any) -> Any:
    names = [name for name in frame.columns if not isinstance(name, str)]
    if names:
        raise ContractError(f"a column is named by {type(names[0]).__name__}, not by str")
    _check_names(list(frame.columns), {})
    try:
        return pa.Table.from_pandas(frame, preserve_index=False)
    except (pa.ArrowInvalid, pa.ArrowTypeError, pa.ArrowNotImplementedError):
        raise ContractError(f'column "{_mixed(frame)}" holds values of several types; hint: give it one dtype') from None


def _mixed(frame: Any) -> str:
    for name in frame.columns:
        try:
            pa.array(frame[name], from_pandas=True)
        except pa.ArrowException:
            return str(name)
    return "?"


def without(result: Any, rejected: set[int], count: int) -> Any:
    """The very batch that was given, less its rejected rows. pandas goes by the index, which an
    in-place sort keeps with its row."""
    if len(result) != count or not rejected:
        return result
    if isinstance(result, pa.RecordBatch):
        return result.filter(_kept(rejected, count))
    if type(result).__module__.startswith("pandas"):
        return result[~result.index.isin(rejected)]
    import polars

    return result.filter(polars.Series([row not in rejected for row in range(count)], dtype=polars.Boolean))


def _kept(rejected: set[int], count: int) -> Any:
    return pc.invert(pc.is_in(pa.array(range(count), pa.int64()), pa.array(sorted(rejected), pa.int64())))
