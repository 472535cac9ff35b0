"""Batches as JSON objects, one a line: the form that needs nothing but the standard library."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any

from . import postgres, values
from .errors import ContractError
from .inference import infer

Columns = dict[str, str]
Row = dict[str, Any]


def decode(body: bytes | bytearray, columns: Mapping[str, str]) -> list[Row]:
    # A line break inside a JSON string is escaped, so every one that is seen ends a row: one parse
    # for the batch instead of one for each row.
    lines = body.strip().replace(b"\n", b",")
    rows: list[Row] = json.loads(b"[" + lines + b"]")
    for name, pg_type in columns.items():
        decode_value = values.form(pg_type).decode
        if decode_value is None:
            continue
        for row in rows:
            value = row[name]
            if value is not None:
                row[name] = decode_value(value)
    return rows


def encode(
    rows: list[Row], given: Mapping[str, str], declared: Mapping[str, str] | None
) -> tuple[Columns, bytes]:
    """The columns of the result, told from the rows, and the rows themselves."""
    if not rows:
        return dict(declared if declared is not None else given), b""
    names = _names(rows, given)
    _check_declared(names, declared or {})
    columns: Columns = {}
    encoded: list[list[Any]] = []
    for name in names:
        column = [row.get(name) for row in rows]
        columns[name], cells = _encoded(name, column, given, declared or {})
        encoded.append(cells)
    return columns, _lines(columns, encoded, len(rows))


def checked(rows: Iterable[Any]) -> list[Row]:
    """What a function returned, with every row looked at."""
    if isinstance(rows, (str, bytes, Mapping)) or not isinstance(rows, Iterable):
        raise ContractError(f"returned {type(rows).__name__}, not a list of dicts")
    result = list(rows)
    for row in result:
        if not isinstance(row, dict):
            raise ContractError(f"returned a list with {type(row).__name__} in it, not a list of dicts")
    return result


def _names(rows: list[Row], given: Mapping[str, str]) -> list[str]:
    """The same in every row: what a row does not say could mean NULL, or that it stays as it was."""
    found = dict.fromkeys(rows[0])
    for name in {name for row in rows for name in row}:
        if not isinstance(name, str):
            raise ContractError(f"a column is named by {type(name).__name__}, not by str")
    for row in rows:
        if row.keys() != found.keys():
            odd = min(row.keys() ^ found.keys())
            raise ContractError(
                f'column "{odd}" is in some rows and not in others; hint: return every column in every row, '
                "None where it has no value"
            )
    return [name for name in given if name in found] + [name for name in found if name not in given]


def _check_declared(names: list[str], declared: Mapping[str, str]) -> None:
    missing = [name for name in declared if name not in names]
    if missing:
        raise ContractError(f"declared columns did not come back: {', '.join(missing)}; returned are {', '.join(names)}")


def _encoded(
    name: str, column: list[Any], given: Mapping[str, str], declared: Mapping[str, str]
) -> tuple[str, list[Any]]:
    if name in declared:
        return declared[name], _fitted(name, column, declared[name], "is declared")
    if name in given:
        try:
            return given[name], values.encode_all(column, values.form(given[name]))
        except values.Misfit:
            pass
    pg_type = infer(name, column)
    return pg_type, _fitted(name, column, pg_type, "looks like")


def _fitted(name: str, column: list[Any], pg_type: str, how: str) -> list[Any]:
    try:
        return values.encode_all(column, values.form(pg_type))
    except values.Misfit as misfit:
        raise ContractError(f'column "{name}" {how} {pg_type} and holds {misfit}') from None
    except OverflowError as error:
        raise ContractError(f'column "{name}" {how} {pg_type}: {error}') from None


def _lines(columns: Columns, cells: list[list[Any]], count: int) -> bytes:
    """Column by column: one pass of the encoder for each, and one template for all rows."""
    if not columns:
        return b"{}\n" * count
    keys = (_JSON.encode(name).replace("%", "%%") for name in columns)
    template = "{" + ",".join(f"{key}:%s" for key in keys) + "}\n"
    texts = [_texts(column, pg_type) for column, pg_type in zip(cells, columns.values())]
    text = "".join([template % row for row in zip(*texts)])
    try:
        return text.encode()
    except UnicodeEncodeError:
        raise ContractError(_broken(list(columns), cells)) from None


def _texts(cells: list[Any], pg_type: str) -> list[str]:
    if postgres.is_array(pg_type):
        return [_JSON.encode(cell) for cell in cells]
    # A line break inside a string is escaped, so as a separator it is unambiguous.
    return _BY_LINE.encode(cells)[1:-1].split("\n")


_JSON = json.JSONEncoder(ensure_ascii=False, allow_nan=False, separators=(",", ":"))
_BY_LINE = json.JSONEncoder(ensure_ascii=False, allow_nan=False, separators=("\n", ":"))


def _broken(names: list[str], columns: list[list[Any]]) -> str:
    for name, cells in zip(names, columns):
        try:
            json.dumps(cells, ensure_ascii=False).encode()
        except UnicodeEncodeError:
            return f'column "{name}" holds text with half a character (a lone surrogate)'
    return "the name of a column holds half a character (a lone surrogate)"
