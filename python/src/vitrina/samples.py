"""Rows of Python values as Arrow batches and back, for tests. Needs pyarrow."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any
from uuid import UUID

import pyarrow as pa

from . import arrow_types, intervals, postgres, values

Value = Callable[[Any], Any]


def to_batch(rows: list[dict[str, Any]], columns: Mapping[str, str]) -> Any:
    """As a runner would send it: every field says its Postgres type."""
    arrays, fields = [], []
    for name, pg_type in columns.items():
        cells = _each([row.get(name) for row in rows], _TO_ARROW.get(postgres.element(pg_type)))
        data_type = pa.null() if pg_type == "null" else arrow_types.of_postgres(pg_type)
        arrays.append(pa.array(cells, data_type))
        fields.append(_field(name, data_type, pg_type))
    return pa.RecordBatch.from_arrays(arrays, schema=pa.schema(fields))


def _field(name: str, data_type: Any, pg_type: str) -> Any:
    if pg_type == "null":
        return pa.field(name, data_type)
    return pa.field(name, data_type, metadata={"pg_oid": str(postgres.oid(pg_type))})


def from_batch(batch: Any) -> tuple[dict[str, str], list[dict[str, Any]]]:
    columns = {field.name: arrow_types.to_postgres(field) for field in batch.schema}
    cells = [
        _each(batch.column(index).to_pylist(), _FROM_ARROW.get(postgres.element(pg_type)))
        for index, pg_type in enumerate(columns.values())
    ]
    rows = [dict(zip(columns, each)) for each in zip(*cells)]
    return columns, rows


def _each(cells: list[Any], function: Value | None) -> list[Any]:
    if function is None:
        return cells
    return [
        None if cell is None else _each(cell, function) if isinstance(cell, list) else function(cell)
        for cell in cells
    ]


def _json_text(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, allow_nan=False)


_TO_ARROW: dict[str, Value] = {
    "numeric": lambda value: values.form("numeric").encode(value),
    "json": _json_text,
    "jsonb": _json_text,
    "uuid": lambda value: value.bytes,
    "interval": intervals.read,
}
_FROM_ARROW: dict[str, Value] = {
    "numeric": lambda text: values.form("numeric").decode(text),  # type: ignore[misc]
    "json": json.loads,
    "jsonb": json.loads,
    "uuid": lambda data: UUID(bytes=data),
    "interval": intervals.write,
}
