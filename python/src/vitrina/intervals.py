"""Postgres intervals as ISO 8601 text and back: for libraries that have no type of months, days and
nanoseconds."""

from __future__ import annotations

import re
from typing import Any

import pyarrow as pa

_TYPE = pa.month_day_nano_interval()
_SECOND = 1_000_000_000
_PART = r"(?:([+-]?\d+){})?"
_TEXT = re.compile(
    "P" + "".join(_PART.format(unit) for unit in "YMWD") + r"(?:T(?:([+-]?\d+)H)?(?:([+-]?\d+)M)?(?:([+-]?)(\d+)(?:\.(\d{1,9}))?S)?)?"
)


def to_text(column: Any) -> Any:
    """Of an interval column or a list of them."""
    texts = _each(column.to_pylist(), write)
    return pa.array(texts, pa.string() if column.type == _TYPE else pa.list_(pa.string()))


def from_text(column: Any, wanted: Any) -> Any:
    return pa.array(_each(column.to_pylist(), read), wanted)


def _each(values: list[Any], function: Any) -> list[Any]:
    return [
        None if value is None else _each(value, function) if isinstance(value, list) else function(value)
        for value in values
    ]


def write(value: Any) -> str:
    months, days, nanoseconds = value
    years, months = _split(months, 12)
    minutes, rest = _split(nanoseconds, 60 * _SECOND)
    hours, minutes = _split(minutes, 60)
    date = _parts((years, "Y"), (months, "M"), (days, "D"))
    time = _parts((hours, "H"), (minutes, "M")) + _seconds(rest)
    return "P" + date + ("T" + time if time else "") if date or time else "PT0S"


def _split(value: int, unit: int) -> tuple[int, int]:
    """Towards zero, so that all parts of one count have one sign."""
    sign = -1 if value < 0 else 1
    whole, rest = divmod(abs(value), unit)
    return sign * whole, sign * rest


def _parts(*parts: tuple[int, str]) -> str:
    return "".join(f"{count}{unit}" for count, unit in parts if count)


def _seconds(nanoseconds: int) -> str:
    if not nanoseconds:
        return ""
    whole, fraction = divmod(abs(nanoseconds), _SECOND)
    digits = f".{fraction:09}".rstrip("0") if fraction else ""
    return f"{'-' if nanoseconds < 0 else ''}{whole}{digits}S"


def read(text: str) -> tuple[int, int, int]:
    found = _TEXT.fullmatch(text)
    if found is None or text.endswith(("P", "T")):
        raise ValueError("not an interval")
    years, months, weeks, days, hours, minutes = (int(part or 0) for part in found.groups()[:6])
    sign, whole, fraction = found.groups()[6:]
    seconds = int(whole or 0) * _SECOND + int((fraction or "").ljust(9, "0"))
    nanoseconds = (hours * 3600 + minutes * 60) * _SECOND + (-seconds if sign == "-" else seconds)
    return years * 12 + months, weeks * 7 + days, nanoseconds
