"""Between the Arrow types that libraries make and the few that have a Postgres type.

Imported only where a function takes an Arrow batch: it needs pyarrow.
"""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as kinds

from . import intervals, postgres
from .errors import ContractError

UUID = pa.binary(16)
INTERVAL = pa.month_day_nano_interval()

_SCALARS: dict[str, Any] = {
    "boolean": pa.bool_(),
    "smallint": pa.int16(),
    "integer": pa.int32(),
    "bigint": pa.int64(),
    "real": pa.float32(),
    "double precision": pa.float64(),
    "bytea": pa.binary(),
    "date": pa.date32(),
    "time": pa.time64("us"),
    "timestamp": pa.timestamp("us"),
    "timestamptz": pa.timestamp("us", tz="UTC"),
    "interval": INTERVAL,
    "uuid": UUID,
}
_PLAIN = (*_SCALARS.values(), pa.string(), pa.null())
_WIDER = {
    pa.int8(): pa.int16(),
    pa.uint8(): pa.int16(),
    pa.uint16(): pa.int32(),
    pa.uint32(): pa.int64(),
    pa.uint64(): pa.int64(),
    pa.float16(): pa.float32(),
}


def of_postgres(pg_type: str) -> Any:
    """Text kinds, numeric, json and jsonb are all strings: a field's `pg_oid` tells them apart."""
    scalar = _SCALARS.get(postgres.element(pg_type), pa.string())
    return pa.list_(scalar) if postgres.is_array(pg_type) else scalar


def to_postgres(field: Any) -> str:
    """By the field's `pg_oid` where its type agrees, else by its type alone."""
    noted = (field.metadata or {}).get(b"pg_oid", b"")
    named = postgres.of_oid(int(noted)) if noted.isdigit() else None
    if named is not None and of_postgres(named) == field.type:
        return named
    return _by_type(field.type)


def _by_type(data_type: Any) -> str:
    if kinds.is_list(data_type):
        return _by_type(data_type.value_type) + "[]"
    for name, known in _SCALARS.items():
        if known == data_type:
            return name
    if kinds.is_timestamp(data_type):
        return "timestamptz"
    return "null" if kinds.is_null(data_type) else "text"


def plain(name: str, column: Any) -> Any:
    """The column as one array of a type that Postgres has, with the same values."""
    column = column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column
    column = _unwrapped(column)
    if column.type in _PLAIN:
        return column
    try:
        return _cast(name, column)
    except pa.ArrowInvalid:
        # Arrow's own words quote the value; a row's values belong in no log.
        raise ContractError(
            f'column "{name}" is {column.type}, and holds values that {_target(name, column.type)} does not'
        ) from None


def _unwrapped(column: Any) -> Any:
    if isinstance(column.type, pa.BaseExtensionType):
        column = column.storage
    if kinds.is_run_end_encoded(column.type):
        column = pc.run_end_decode(column)
    if kinds.is_dictionary(column.type):
        column = column.dictionary_decode()
    return column


def _cast(name: str, column: Any) -> Any:
    if kinds.is_decimal(column.type):
        return _decimal_text(column)
    if kinds.is_duration(column.type):
        nanoseconds = column.cast(pa.duration("ns")).cast(pa.int64()).to_pylist()
        return pa.array([None if each is None else (0, 0, each) for each in nanoseconds], INTERVAL)
    if _is_list(column.type) and kinds.is_decimal(column.type.value_type):
        texts = [None if items is None else list(map(_written, items)) for items in column.to_pylist()]
        return pa.array(texts, pa.list_(pa.string()))
    options = pc.CastOptions(target_type=_target(name, column.type), allow_time_truncate=True)
    return column.cast(options=options)


def _decimal_text(column: Any) -> Any:
    text = column.cast(pa.string())
    # Arrow writes small ones with an exponent; Postgres never does.
    if column.type.scale > 6 or column.type.scale < 0:
        return pa.array(list(map(_written, column.to_pylist())), pa.string())
    return text


def _written(value: Any) -> str | None:
    return None if value is None else format(value, "f")


def _is_list(data_type: Any) -> bool:
    views = (kinds.is_list_view, kinds.is_large_list_view) if hasattr(kinds, "is_list_view") else ()
    known = (kinds.is_list, kinds.is_large_list, kinds.is_fixed_size_list, *views)
    return any(is_kind(data_type) for is_kind in known)


def _target(name: str, data_type: Any) -> Any:
    """The plain type that takes the values of another."""
    if data_type in _PLAIN:
        return data_type
    if data_type in _WIDER:
        return _WIDER[data_type]
    if isinstance(data_type, pa.BaseExtensionType):
        return _target(name, data_type.storage_type)
    if kinds.is_dictionary(data_type):
        return _target(name, data_type.value_type)
    if _is_list(data_type) and not _is_list(data_type.value_type):
        return pa.list_(_target(name, data_type.value_type))
    for is_kind, target in _FAMILIES:
        if is_kind(data_type):
            return target
    if kinds.is_timestamp(data_type):
        return pa.timestamp("us", tz=None if data_type.tz is None else "UTC")
    raise ContractError(
        f'column "{name}" is {data_type}, which has no Postgres type; hint: write it as JSON text, and declare it jsonb'
    )


_FAMILIES: tuple[tuple[Any, Any], ...] = (
    (kinds.is_large_string, pa.string()),
    (getattr(kinds, "is_string_view", kinds.is_string), pa.string()),
    (kinds.is_decimal, pa.string()),
    (kinds.is_large_binary, pa.binary()),
    (getattr(kinds, "is_binary_view", kinds.is_binary), pa.binary()),
    (kinds.is_fixed_size_binary, pa.binary()),
    (kinds.is_date, pa.date32()),
    (kinds.is_time, pa.time64("us")),
    (kinds.is_duration, INTERVAL),
)


def restored(column: Any, before: Any) -> Any:
    """The column in the type it had when it was given, where a library only changed its shape."""
    if column.type == before:
        return column
    if not _reshaped(column.type, before):
        return column
    try:
        return intervals.from_text(column, before) if _inner(before) == INTERVAL else column.cast(before)
    except (pa.ArrowInvalid, ValueError):
        return column  # the function made something else of it


def _reshaped(now: Any, before: Any) -> bool:
    if kinds.is_list(now) != kinds.is_list(before):
        return False
    if kinds.is_list(now) and kinds.is_null(now.value_type):
        return True
    return (_inner(now), _inner(before)) in ((pa.binary(), UUID), (pa.string(), INTERVAL))


def _inner(data_type: Any) -> Any:
    return data_type.value_type if kinds.is_list(data_type) else data_type


def declared(name: str, column: Any, pg_type: str) -> Any:
    """The column as the type it was declared, or an error. Only shapes are changed, never values."""
    wanted = of_postgres(pg_type)
    column = column.cast(wanted) if kinds.is_null(column.type) else restored(column, wanted)
    if column.type != wanted:
        raise ContractError(
            f'column "{name}" is declared {pg_type} ({wanted}) and came back as {column.type}; hint: cast it'
        )
    return column
