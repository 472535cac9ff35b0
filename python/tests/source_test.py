"""Sources: a generator of rows and positions, read one batch at a time."""

import json

import pyarrow as pa
import pytest

START = {"call": "source", "task": "rates", "position": None, "columns": None, "context": {"pipeline": "p", "batch_size": 2}}
NEXT = {"call": "next"}


def _source(workshop, body, head="def rates(context, position) -> Iterator[tuple[list[dict], Any]]", decorator="@source"):
    lines = "\n".join("    " + line for line in body.splitlines())
    return workshop.ready(f"""
from typing import Any, Iterator, Generator, Iterable
from vitrina import source, Context, Reject, Retry

{decorator}
{head}:
{lines}
""".strip() + "\n")


def _next(runner):
    header, body = runner.ask(NEXT)
    return header, [json.loads(line) for line in body.splitlines()] if "batch" in header else None


COUNT = "for n in range(position or 0, 3): yield [{'n': n}], n + 1"


def a_source_is_read_batch_by_batch_to_its_end(workshop):
    runner = _source(workshop, COUNT)
    runner.send(START)
    columns = [{"name": "n", "type": "bigint"}]
    for n in range(3):
        assert _next(runner) == ({"batch": {"position": n + 1, "columns": columns}}, [{"n": n}])
    assert _next(runner)[0] == {"end": {"position": 3}}
    assert "no source is open" in _next(runner)[0]["error"]["message"]


def a_source_begins_at_the_position_it_is_given(workshop):
    runner = _source(workshop, COUNT)
    runner.send({**START, "position": 2})
    assert _next(runner)[1] == [{"n": 2}]
    runner.send({**START, "position": 9})
    assert _next(runner)[0] == {"end": {"position": 9}}


def a_new_source_call_closes_the_one_that_is_open(workshop):
    runner = _source(workshop, "try:\n    yield [{'n': position}], 1\n    yield [], 2\nfinally:\n    print('closed', position)")
    runner.send({**START, "position": 7})
    _next(runner)
    runner.send({**START, "position": 8})
    assert _next(runner)[1] == [{"n": 8}]
    assert runner.printed() == "closed 7\n"
    runner.send({"call": "close"})
    assert "no source is open" in _next(runner)[0]["error"]["message"]
    assert runner.printed() == "closed 7\nclosed 8\n"


def the_end_of_the_pipe_closes_the_open_source(workshop):
    runner = _source(workshop, "try:\n    yield [], 1\nfinally:\n    print('closed')")
    runner.send(START)
    _next(runner)
    assert runner.hang_up() == 0
    assert runner.printed() == "closed\n"


def a_source_that_will_not_close_does_not_take_the_worker_with_it(workshop):
    runner = _source(workshop, "try:\n    yield [], 1\nfinally:\n    raise ValueError('stuck')")
    runner.send(START)
    _next(runner)
    runner.send({"call": "close"})
    runner.send(START)
    assert "batch" in _next(runner)[0]
    assert "stuck" in runner.printed("stderr")


@pytest.mark.parametrize(("body", "kind", "words"), [
    ("yield [], 1; raise ValueError('gone')", "exception", "gone"),
    ("yield [], 1; raise Retry('busy')", "retry", "busy"),
    ("yield [], 1; import sys; sys.exit()", "exception", ""),
    ("yield [], 1; raise Reject('no')", "contract", "a source refuses no rows"),
    ("yield [], 1; context.reject(0, 'no')", "contract", "a source refuses no rows"),
    ("yield [], 1; yield []", "contract", "yielded list, not (rows, position)"),
    ("yield [], 1; yield [], {1, 2}", "contract", "a position must be JSON"),
    ("yield [], 1; yield [], float('nan')", "contract", "a position must be JSON"),
    ("yield [], 1; yield 'rows', 1", "contract", "returned str, not a list of dicts"),
])
def an_error_of_a_source_is_an_error_of_that_batch_and_ends_it(workshop, body, kind, words):
    runner = _source(workshop, body)
    runner.send(START)
    assert "batch" in _next(runner)[0]
    error = _next(runner)[0]["error"]
    assert error["kind"] == kind and words in error["message"]
    assert "no source is open" in _next(runner)[0]["error"]["message"]
    runner.send(START)
    assert "batch" in _next(runner)[0]


def what_is_wrong_with_a_source_call_is_told_to_the_first_next(workshop):
    runner = _source(workshop, COUNT)
    runner.send({**START, "task": "nobody"})
    assert 'no source is named "nobody"; known are rates' in _next(runner)[0]["error"]["message"]
    runner = _source(workshop, "return 5")
    runner.send(START)
    assert "hint: yield rows, position" in _next(runner)[0]["error"]["message"]


def single_rows_are_gathered_into_batches(workshop):
    body = "for n in range(3): yield {'n': n}, n\nreturn 'end'"
    runner = _source(workshop, body, "def rates(position) -> Iterator[tuple[dict, int]]")
    runner.send(START)
    header, rows = _next(runner)
    assert (header["batch"]["position"], rows) == (1, [{"n": 0}, {"n": 1}])
    header, rows = _next(runner)
    assert (header["batch"]["position"], rows) == (2, [{"n": 2}])
    assert _next(runner)[0] == {"end": {"position": "end"}}


def what_a_source_returns_is_the_position_of_its_end(workshop):
    runner = _source(workshop, "yield [], 1\nreturn {'at': 2}")
    runner.send(START)
    assert _next(runner)[0]["batch"]["position"] == 1
    assert _next(runner)[0] == {"end": {"position": {"at": 2}}}


@pytest.mark.parametrize(("library", "made"), [
    ("pyarrow.RecordBatch", "pyarrow.record_batch({'n': [1]})"),
    ("polars.DataFrame", "polars.DataFrame({'n': [1]})"),
    ("pandas.DataFrame", "pandas.DataFrame({'n': [1]})"),
])
def a_source_may_yield_arrow_batches(workshop, library, made):
    name = library.split(".")[0]
    runner = _source(workshop, f"yield {made}, 1", "def rates(position)", f"import {name}\n@source(batch={library}, output={{'n': 'bigint'}})")
    runner.send(START)
    header, body = runner.ask(NEXT)
    assert header == {"batch": {"position": 1}}
    assert pa.ipc.open_stream(body).read_all().to_pydict() == {"n": [1]}


def an_empty_batch_of_a_source_has_its_declared_columns(workshop):
    runner = _source(workshop, "yield [], 1", decorator="@source(output={'n': 'date'})")
    runner.send(START)
    assert _next(runner)[0]["batch"]["columns"] == [{"name": "n", "type": "date"}]


@pytest.mark.parametrize(("head", "words"), [
    ("def rates(context, position)", "has no annotation"),
    ("def rates(context, position) -> Iterator[list[dict]]", "has no annotation"),
    ("def rates(context, position) -> Iterator[tuple[int, int]]", "annotated int"),
    ("def rates(context) -> Iterator[tuple[dict, int]]", "takes no position"),
    ("def rates(position, limit) -> Iterator[tuple[dict, int]]", 'asks for "limit"'),
])
def a_source_whose_batch_type_is_unknown_is_an_error_at_import(workshop, head, words):
    error = workshop.refused(f"from typing import Iterator\nfrom vitrina import source\n@source\n{head}:\n    yield [], 1\n")
    assert error["kind"] == "contract" and words in error["message"]


@pytest.mark.parametrize("head", [
    "def rates(position, context: Context) -> Generator[tuple[list[dict[str, Any]], Any], None, None]",
    "def rates(position, *, context) -> Iterable[tuple[list[dict], Any]]",
    "def rates(since) -> 'Iterator[tuple[list[dict], Any]]'",
])
def a_source_may_be_written_in_several_ways(workshop, head):
    runner = _source(workshop, "yield [{'n': 1}], 1", head)
    runner.send(START)
    assert _next(runner)[1] == [{"n": 1}]
