"""Tests of transforms and sources as the runner would run them.

    from vitrina.testing import run

    def a_title_becomes_a_slug():
        assert run(slug, [{"title": "Das Boot"}]).rows == [{"title": "Das Boot", "slug": "das-boot"}]

What is given and what is returned makes the same way through JSON or Arrow as in a worker.
"""

from __future__ import annotations

import difflib
import json
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from . import calls, postgres, values
from . import rows as row_form
from .inference import infer
from .registry import Task, task_of

__all__ = ["Batch", "Refused", "Result", "golden", "read", "run"]

Row = dict[str, Any]


@dataclass(frozen=True)
class Refused:
    row: int
    message: str
    code: str = "row.refused"


@dataclass(frozen=True)
class Result:
    """What the runner would get of a transform. `batch` is the record batch of Arrow functions."""

    rows: list[Row]
    rejects: list[Refused]
    columns: dict[str, str]
    batch: Any = field(default=None, compare=False, repr=False)


@dataclass(frozen=True)
class Batch:
    """What the runner would get of a source, once."""

    rows: list[Row]
    position: Any
    columns: dict[str, str]


def run(
    function: Callable[..., Any],
    batch: Any,
    columns: Mapping[str, str] | None = None,
    **context: Any,
) -> Result:
    """Calls a transform with a list of dicts, or a batch of an Arrow type. `columns` names Postgres
    types; those left out come from the declared `input`, then from the values. Exceptions pass."""
    task = task_of(function)
    known, body = _sent(task, batch, columns)
    header = {"columns": calls.listed(known), "context": context}
    answer, result = calls.transform(task, _through_json(header), body)
    done = _through_json(answer)["done"]
    rejects = [Refused(each["row"], each["message"], each["code"]) for each in done["rejects"]]
    rows, returned, made = _received(task, done, result)
    return Result(rows, rejects, returned, made)


def read(function: Callable[..., Any], position: Any = None, *, batches: int | None = None, **context: Any) -> list[Batch]:
    """Reads a source from a position to its end, or so many batches of it."""
    task = task_of(function)
    reading = calls.Reading(task, _through_json({"position": position, "context": context}))
    result: list[Batch] = []
    try:
        while batches is None or len(result) < batches:
            answer, body = reading.next()
            if "end" in answer:
                break
            header = _through_json(answer)["batch"]
            rows, columns, _ = _received(task, header, body)
            result.append(Batch(rows, header["position"], columns))
    finally:
        reading.close()
    return result


def golden(function: Callable[..., Any], path: str | os.PathLike[str]) -> None:
    """Runs a transform over the rows of a JSON file and compares with what the file expects:
    `{"columns": {…}, "rows": […], "expected": […], "rejects": […]}`. Values are written as they
    travel; those of json columns are JSON itself."""
    with open(path, encoding="utf-8") as file:
        sample = json.load(file)
    columns = postgres.declared(sample["columns"]) or {}
    body = row_form.decode(_golden_lines(sample["rows"], columns), columns)
    result = run(function, body, columns)
    expected = [json.dumps(row, ensure_ascii=False, sort_keys=True) for row in sample["expected"]]
    actual = [_written(row, result.columns) for row in result.rows]
    _compare(f"rows of {os.fspath(path)}", expected, actual)
    wanted = sample.get("rejects", [])
    _compare(f"rejects of {os.fspath(path)}", *_rejects(wanted, result.rejects))


def _sent(task: Task, batch: Any, columns: Mapping[str, str] | None) -> tuple[dict[str, str], Any]:
    told = {**(task.input or {}), **(postgres.declared(columns) or {})}
    if isinstance(batch, dict):
        batch = [batch]
    if isinstance(batch, list):
        known = _columns(batch, told)
        if task.type.travels == "rows":
            return known, row_form.encode(batch, known, known)[1] if batch else b""
        from . import arrow, samples

        return known, arrow.write(samples.to_batch(batch, known))
    from . import arrow, samples

    record = arrow.returned(batch, None, None)
    if task.type.travels == "rows":
        known, rows = samples.from_batch(record)
        return _sent(task, rows, {**known, **told})
    return samples.from_batch(record.slice(0, 0))[0], arrow.write(record)


def _columns(rows: list[Row], told: Mapping[str, str]) -> dict[str, str]:
    names = dict.fromkeys(name for row in rows for name in row)
    inferred = {name: told.get(name) or infer(name, [row.get(name) for row in rows]) for name in names}
    return {**{name: pg_type for name, pg_type in told.items()}, **inferred}


def _received(task: Task, header: dict[str, Any], body: Any) -> tuple[list[Row], dict[str, str], Any]:
    if task.type.travels == "rows":
        columns = {column["name"]: column["type"] for column in header["columns"]}
        return row_form.decode(bytes(body), columns), columns, None
    from . import arrow, samples

    batch = arrow.read(body)
    columns, rows = samples.from_batch(batch)
    return rows, columns, batch


def _through_json(header: dict[str, Any]) -> dict[str, Any]:
    parsed: dict[str, Any] = json.loads(json.dumps(header, allow_nan=False))
    return parsed


def _golden_lines(rows: list[Row], columns: Mapping[str, str]) -> bytes:
    """JSON columns hold JSON in the file, and text that holds JSON on the way."""
    complete = [
        {name: _as_text(row.get(name)) if pg_type in postgres.JSON_KINDS else row.get(name) for name, pg_type in columns.items()}
        for row in rows
    ]
    return "\n".join(json.dumps(row) for row in complete).encode()


def _as_text(value: Any) -> str | None:
    return None if value is None else json.dumps(value)


def _written(row: Row, columns: Mapping[str, str]) -> str:
    travelling = {
        name: row[name] if pg_type in postgres.JSON_KINDS else values.encode_all([row[name]], values.form(pg_type))[0]
        for name, pg_type in columns.items()
    }
    return json.dumps(travelling, ensure_ascii=False, sort_keys=True)


def _rejects(wanted: list[dict[str, Any]], rejects: list[Refused]) -> tuple[list[str], list[str]]:
    """Of each reject, only what the file says of it is compared."""
    actual: list[dict[str, Any]] = [{"row": each.row, "code": each.code, "message": each.message} for each in rejects]
    said: dict[int, set[str]] = {each["row"]: set(each) for each in wanted}
    shown = [{key: value for key, value in each.items() if key in said.get(each["row"], set(each))} for each in actual]
    return [json.dumps(each, sort_keys=True) for each in wanted], [json.dumps(each, sort_keys=True) for each in shown]


def _compare(what: str, expected: list[str], actual: list[str]) -> None:
    if expected != actual:
        lines = difflib.unified_diff(expected, actual, "expected", "returned", lineterm="", n=1)
        raise AssertionError(f"{what} differ\n" + "\n".join(lines))
