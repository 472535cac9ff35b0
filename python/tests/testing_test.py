"""The helpers for tests see what a runner would."""

from __future__ import annotations

import datetime
import decimal
import json
import uuid
from collections.abc import Iterator
from typing import Any

import pandas
import polars
import pyarrow as pa
import pytest

import vitrina
from vitrina import testing


@vitrina.transform(name="t.slug", input={"title": "text"}, output={"slug": "text"})
def _slug(row: dict) -> dict:
    if not row["title"]:
        raise vitrina.Reject("no title", code="title.missing")
    return {**row, "slug": row["title"].lower().replace(" ", "-")}


@vitrina.transform(name="t.polars")
def _polars(batch: polars.DataFrame, context: vitrina.Context) -> polars.DataFrame:
    context.reject(batch["n"] < 0, "negative")
    return batch.filter(polars.col("n") >= 0).with_columns(twice=polars.col("n") * 2)


@vitrina.transform(name="t.echo-pandas")
def _pandas(batch: pandas.DataFrame) -> pandas.DataFrame:
    return batch


@vitrina.transform(name="t.echo-rows")
def _rows(rows: list[dict], context: vitrina.Context) -> list[dict]:
    return [{**row, "pipeline": context.pipeline} for row in rows]


@vitrina.source(name="t.rates")
def _rates(context: vitrina.Context, position: Any) -> Iterator[tuple[list[dict], Any]]:
    for day in range(position or 0, 3):
        yield [{"day": day, "rate": decimal.Decimal("1.10")}], day + 1


def a_run_returns_rows_and_rejects():
    result = testing.run(_slug, [{"title": "Das Boot"}, {"title": ""}])
    assert result.rows == [{"title": "Das Boot", "slug": "das-boot"}]
    assert result.rejects == [testing.Refused(1, "no title", "title.missing")]
    assert result.columns == {"title": "text", "slug": "text"}


def a_run_of_one_dict_is_a_run_of_one_row():
    assert testing.run(_slug, {"title": "A"}).rows == [{"title": "A", "slug": "a"}]


def a_run_with_rows_reaches_an_arrow_function_as_its_batch():
    result = testing.run(_polars, [{"n": 1}, {"n": -1}])
    assert result.rows == [{"n": 1, "twice": 2}]
    assert result.rejects == [testing.Refused(1, "negative")]
    assert isinstance(result.batch, pa.RecordBatch)


@pytest.mark.parametrize("batch", [pa.record_batch({"n": [1]}), polars.DataFrame({"n": [1]}), pandas.DataFrame({"n": [1]})])
def a_run_takes_any_batch_for_any_function(batch):
    assert testing.run(_polars, batch).rows == [{"n": 1, "twice": 2}]
    assert testing.run(_rows, batch, pipeline="p").rows == [{"n": 1, "pipeline": "p"}]


@pytest.mark.parametrize("function", [_rows, _pandas, _polars])
def a_run_takes_every_type_there_and_back(function):
    row = {
        "n": 1, "b": True, "f": 1.5, "d": decimal.Decimal("1.10"), "t": "x", "y": b"\xff", "i": "P1Y2M3DT4H5M6.7S",
        "date": datetime.date(2024, 5, 1), "time": datetime.time(1, 2, 3),
        "ts": datetime.datetime(2024, 5, 1, 1), "tz": datetime.datetime(2024, 5, 1, tzinfo=datetime.timezone.utc),
        "u": uuid.UUID(int=5), "j": {"a": [1, None]}, "l": ["a", None], "m": [decimal.Decimal("2.50")],
    }
    result = testing.run(function, [row], {"i": "interval"})
    assert result.rows[0].items() >= row.items() if function is _rows else {**result.rows[0], **row} == result.rows[0]
    assert result.columns["i"] == "interval" and result.columns["j"] == "jsonb"


def an_exception_passes_through_a_run():
    with pytest.raises(vitrina.ContractError, match='needs column "title" as text; it is integer'):
        testing.run(_slug, [{"title": 1}], {"title": "integer"})


def a_function_that_is_not_decorated_is_an_error():
    with pytest.raises(vitrina.DeclarationError, match="neither a transform nor a source"):
        testing.run(lambda row: row, [])


def a_read_returns_the_batches_of_a_source():
    batches = testing.read(_rates, 1)
    assert [batch.position for batch in batches] == [2, 3]
    assert batches[0].rows == [{"day": 1, "rate": decimal.Decimal("1.10")}]
    assert batches[0].columns == {"day": "bigint", "rate": "numeric"}
    assert len(testing.read(_rates, batches=1)) == 1


def _golden(tmp_path, **changes):
    sample = {
        "columns": {"id": "uuid", "title": "text", "facts": "jsonb", "price": "numeric"},
        "rows": [
            {"id": str(uuid.UUID(int=1)), "title": "Das Boot", "facts": {"a": [1]}, "price": "1.10"},
            {"id": None, "title": "", "facts": "text", "price": None},
        ],
        "expected": [
            {"id": str(uuid.UUID(int=1)), "title": "Das Boot", "slug": "das-boot", "facts": {"a": [1]}, "price": "1.10"},
        ],
        "rejects": [{"row": 1, "code": "title.missing"}],
    }
    path = tmp_path / "slug.json"
    path.write_text(json.dumps({**sample, **changes}))
    return path


def a_golden_batch_that_comes_out_as_expected_passes(tmp_path):
    testing.golden(_slug, _golden(tmp_path))


def a_golden_batch_that_differs_shows_the_difference(tmp_path):
    with pytest.raises(AssertionError) as raised:
        testing.golden(_slug, _golden(tmp_path, expected=[{"title": "Das Boot"}]))
    lines = str(raised.value).splitlines()
    assert "slug.json differ" in lines[0]
    assert '-{"title": "Das Boot"}' in lines
    assert any(line.startswith('+{"facts": {"a": [1]}, ') for line in lines)


def a_golden_batch_with_other_rejects_shows_the_difference(tmp_path):
    with pytest.raises(AssertionError, match="rejects of"):
        testing.golden(_slug, _golden(tmp_path, rejects=[]))
    with pytest.raises(AssertionError, match="no title"):
        testing.golden(_slug, _golden(tmp_path, rejects=[{"row": 1, "message": "other"}]))
