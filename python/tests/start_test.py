"""How a worker starts: what it tells of its tasks, and what it refuses to start with."""

import platform

import pytest

import vitrina


def a_ready_worker_tells_its_tasks(workshop):
    runner = workshop.start('''
        from typing import Any, Iterator
        from vitrina import source, transform

        @transform(name="film.slug", input={"title": "text"}, output={"slug": "int8"})
        def slug(row: dict) -> dict:
            """Makes a slug.

            Of titles."""
            return row

        @source
        def rates(context, position) -> Iterator[tuple[list[dict], Any]]:
            yield [], None
    ''')
    ready = runner.receive()[0]["ready"]
    assert ready["python"] == platform.python_version()
    assert ready["sdk"] == vitrina.__version__
    slug, rates = ready["tasks"]
    assert len(slug.pop("version_hash")) == 16
    assert slug == {
        "name": "film.slug", "kind": "transform", "batch": "rows", "type": "dict",
        "doc": "Makes a slug.\n\nOf titles.", "input": {"title": "text"}, "output": {"slug": "bigint"},
    }
    assert (rates["name"], rates["kind"], rates["type"], rates["doc"]) == ("rates", "source", "list[dict]", "")
    assert rates["input"] is None and rates["output"] is None


@pytest.mark.parametrize("future", ["", "from __future__ import annotations"])
def the_first_annotation_picks_the_batch_type(workshop, future):
    runner = workshop.start(future + '''
import typing, pyarrow, polars as pl, pandas
from vitrina import transform, Context
@transform
def a(batch: pyarrow.RecordBatch): return batch
@transform
def b(batch: pl.DataFrame, context): return batch
@transform
def c(batch: pandas.DataFrame, c: Context): return batch
@transform
def d(rows: list[dict]): return rows
@transform
def e(rows: typing.List[typing.Dict[str, typing.Any]]): return rows
@transform
def f(row: dict[str, int], *, context): return row
@transform
def g(rows: "list[dict[str, int]]"): return rows
''')
    tasks = runner.receive()[0]["ready"]["tasks"]
    assert [(task["type"], task["batch"]) for task in tasks] == [
        ("pyarrow.RecordBatch", "arrow"), ("polars.DataFrame", "arrow"), ("pandas.DataFrame", "arrow"),
        ("list[dict]", "rows"), ("list[dict]", "rows"), ("dict", "rows"), ("list[dict]", "rows"),
    ]


def an_annotation_for_type_checkers_alone_is_understood(workshop):
    runner = workshop.start('''
        from __future__ import annotations
        from typing import TYPE_CHECKING
        from vitrina import transform
        if TYPE_CHECKING:
            import polars as pl

        @transform
        def a(batch: pl.DataFrame) -> pl.DataFrame:
            return batch
    ''')
    assert runner.receive()[0]["ready"]["tasks"][0]["type"] == "polars.DataFrame"


@pytest.mark.parametrize(("parameter", "words"), [
    ("rows", "has no annotation"),
    ("rows: list", "annotated list"),
    ("rows: set[int]", "annotated set[int]"),
    ("rows: 'Films'", "annotated Films"),
])
def an_annotation_that_is_missing_or_unknown_is_an_error_at_import(workshop, parameter, words):
    error = workshop.refused(f"from vitrina import transform\n@transform\ndef slug({parameter}):\n    return rows\n")
    assert error["kind"] == "contract" and error["type"] == "DeclarationError"
    assert words in error["message"]
    for known in ("pyarrow.RecordBatch", "polars.DataFrame", "pandas.DataFrame", "list[dict]", "dict"):
        assert known in error["message"]
    # Python 3.10 counts a decorated function from its `def`.
    assert error["line"] in ("films.py:2 in <module>", "films.py:3 in <module>")


def a_library_that_is_annotated_and_not_installed_is_an_error(workshop):
    error = workshop.refused('''
        from __future__ import annotations
        import sys
        sys.modules["polars"] = None
        from vitrina import transform
        @transform
        def a(batch: pl.DataFrame): return batch
    ''')
    assert "polars is not installed" in error["message"] and "extra [polars]" in error["message"]


def functions_of_rows_work_without_pyarrow(workshop):
    runner = workshop.ready('''
        import sys
        for library in ("pyarrow", "polars", "pandas", "numpy"):
            assert library not in sys.modules
            sys.modules[library] = None
        from vitrina import transform
        @transform
        def one(row: dict): return row
        @transform
        def many(rows: list[dict]): return rows
    ''')
    for task in ("one", "many"):
        assert runner.rows(task, {"id": "uuid"}, [{"id": None}])[1] == [{"id": None}]


def two_tasks_of_one_name_are_an_error_that_names_both_places(workshop):
    workshop.write("from vitrina import transform\n@transform\ndef slug(row: dict): return row\n", "one")
    workshop.write("from vitrina import transform\n\n@transform(name='slug')\ndef b(row: dict): return row\n", "two")
    error = workshop.refused("", modules=("one", "two"))
    assert "one.py:2 (slug)" in error["message"] and "two.py:3 (b)" in error["message"]


def two_tasks_of_one_name_in_one_file_are_an_error(workshop):
    function = "@transform\ndef slug(row: dict): return row\n"
    error = workshop.refused("from vitrina import transform\n" + function + function)
    assert "films.py:2" in error["message"] and "films.py:4" in error["message"]


@pytest.mark.parametrize("name", ["Slug", "1slug", "", "a" * 64, "a b", "é"])
def a_name_that_does_not_fit_is_an_error(workshop, name):
    error = workshop.refused(f"from vitrina import transform\n@transform(name={name!r})\ndef slug(row: dict): ...\n")
    assert "is no name of a task" in error["message"]


def a_name_may_have_sixty_three_characters_dots_and_dashes(workshop):
    name = "a.b-c_9" + "x" * 56
    workshop.ready(f"from vitrina import transform\n@transform(name={name!r})\ndef slug(row: dict): ...\n")


@pytest.mark.parametrize(("head", "words"), [
    ("async def slug(row: dict)", "is async"),
    ("def slug()", "takes no batch"),
    ("def slug(row: dict, limit)", 'asks for "limit"'),
    ("def slug(row: dict, /)", "by position only"),
    ("def slug(*rows: dict)", "takes no batch"),
    ("class Slug", "takes a function, not type"),
])
def what_cannot_be_called_is_an_error_at_import(workshop, head, words):
    error = workshop.refused(f"from vitrina import transform\n@transform\n{head}: pass\n")
    assert words in error["message"] and error["kind"] == "contract"


def an_unknown_declared_type_lists_the_known_ones(workshop):
    error = workshop.refused("from vitrina import transform\n@transform(output={'a': 'txt'})\ndef a(row: dict): ...\n")
    assert 'unknown type "txt"' in error["message"] and "timestamptz" in error["message"]


def a_module_that_raises_is_an_error_with_its_line(workshop):
    error = workshop.refused("import os\nos.environ['NO_SUCH_THING']\n")
    assert (error["kind"], error["type"], error["line"]) == ("exception", "KeyError", "films.py:2 in <module>")
    assert error["traceback"].startswith("films.py:2, in <module>: os.environ['NO_SUCH_THING']")


def a_module_that_cannot_be_parsed_is_an_error_with_its_line(workshop):
    error = workshop.refused("x = 1\ndef slug(:\n")
    assert error["type"] == "SyntaxError" and error["line"].startswith("films.py:2")


@pytest.mark.parametrize("ending", ["import sys; sys.exit(0)", "raise KeyboardInterrupt", "import no_such_module"])
def a_module_that_ends_itself_is_an_error(workshop, ending):
    assert workshop.refused(ending)["line"] == "films.py:1 in <module>"


def the_version_hash_changes_with_a_helper_in_the_same_module(workshop):
    text = "from vitrina import transform\ndef help(): return {}\n@transform\ndef slug(row: dict): return help()\n"

    def version(text):
        return workshop.start(text).receive()[0]["ready"]["tasks"][0]["version_hash"]

    first = version(text)
    assert version(text) == first
    assert version(text.replace("return {}", "return row")) != first


def a_decorated_function_stays_a_plain_function():
    def slug(row: dict) -> dict:
        return {"slug": row["title"].lower()}

    decorated = vitrina.transform(name="plain-function")(slug)
    assert decorated is slug
    assert decorated({"title": "A"}) == {"slug": "a"}
    assert vitrina.registry()["plain-function"].function is slug


def a_function_with_a_context_is_tested_with_a_plain_context():
    @vitrina.transform(name="with-context")
    def slug(rows: list[dict], context: vitrina.Context) -> list[dict]:
        context.reject(rows[0], "why", code="a.b")
        return rows[1:]

    context = vitrina.Context()
    assert slug([{"a": 1}, {"a": 2}], context) == [{"a": 2}]
    assert context.rejects == [({"a": 1}, "a.b", "why")]
