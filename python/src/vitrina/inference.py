"""The Postgres type of a column that nobody declared, told from the values of one batch."""

from __future__ import annotations

from datetime import date, datetime, time
from decimal import Decimal
from typing import Any
from uuid import UUID

from .errors import ContractError

# Subclasses before their parents: bool is an int, datetime is a date.
_BY_CLASS: tuple[tuple[type | tuple[type, ...], str], ...] = (
    (bool, "boolean"),
    (int, "bigint"),
    (float, "double precision"),
    (Decimal, "numeric"),
    (str, "text"),
    ((bytes, bytearray, memoryview), "bytea"),
    (date, "date"),
    (time, "time"),
    (UUID, "uuid"),
    (dict, "jsonb"),
)
_EXACT: dict[type, str] = {
    bool: "boolean",
    int: "bigint",
    float: "double precision",
    Decimal: "numeric",
    str: "text",
    bytes: "bytea",
    date: "date",
    time: "time",
    UUID: "uuid",
    dict: "jsonb",
}

# A list that has no element to tell its type by; takes that of the lists beside it.
_EMPTY_LIST = "[]"


def infer(column: str, values: list[Any]) -> str:
    """`null` where there are only NULLs."""
    kinds: dict[str, str] = {}
    classes = set(map(type, values)) - {type(None)}
    for exact in [each for each in classes if each in _EXACT]:
        kinds.setdefault(_EXACT[exact], exact.__name__)
        classes.discard(exact)
    if classes:
        for value in values:
            if type(value) in classes:
                kinds.setdefault(_kind(column, value), type(value).__name__)
    return _merged(column, kinds)


def _kind(column: str, value: Any) -> str:
    if isinstance(value, datetime):
        return "timestamp" if value.utcoffset() is None else "timestamptz"
    if isinstance(value, (list, tuple)):
        return _list_kind(column, list(value))
    for classes, name in _BY_CLASS:
        if isinstance(value, classes):
            return name
    raise ContractError(
        f'column "{column}" holds {type(value).__module__}.{type(value).__qualname__}, which has no Postgres type; '
        "hint: return bool, int, float, Decimal, str, bytes, date, time, datetime, UUID, dict or list"
    )


def _list_kind(column: str, items: list[Any]) -> str:
    kinds: dict[str, str] = {}
    for item in items:
        if item is not None:
            kinds.setdefault(_kind(column, item), type(item).__name__)
    if not kinds:
        return _EMPTY_LIST
    if all(kind == "jsonb" or kind.endswith("[]") for kind in kinds):
        return "jsonb"
    return _merged(column, kinds) + "[]"


def _merged(column: str, kinds: dict[str, str]) -> str:
    names = set(kinds)
    if names - {_EMPTY_LIST} and all(name == "jsonb" or name.endswith("[]") for name in names):
        names.discard(_EMPTY_LIST)
    if names == {_EMPTY_LIST}:
        # Any guess may be wrong; lists of words are the most common.
        return "text[]"
    for suffix in ("", "[]"):
        if names == {"bigint" + suffix, "double precision" + suffix}:
            return "double precision" + suffix
    if len(names) > 1:
        raise _several(column, kinds)
    return names.pop() if names else "null"


def _several(column: str, kinds: dict[str, str]) -> ContractError:
    (one, one_class), (other, other_class) = sorted(kinds.items())[:2]
    declare = "jsonb" if "jsonb" in kinds else "text" if "text" in kinds else sorted(kinds)[-1]
    return ContractError(
        f'column "{column}" holds values of several types: {one} ({one_class}) and {other} ({other_class}); '
        f'hint: return one type, and declare it: output={{"{column}": "{declare}"}}'
    )
