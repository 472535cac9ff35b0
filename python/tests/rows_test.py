"""Functions of `dict` and `list[dict]`: what they see, what they may return, what goes back."""

import json

import pytest

ECHO = '''
from vitrina import transform

@transform
def one(row: dict): return row

@transform
def many(rows: list[dict]): return rows
'''

# How a value of each type travels, and what the function sees of it.
VALUES = [
    ("boolean", True, "True"),
    ("smallint", -32768, "-32768"),
    ("integer", 2147483647, "2147483647"),
    ("bigint", -9223372036854775808, "-9223372036854775808"),
    ("real", 1.5, "1.5"),
    ("double precision", 0.1, "0.1"),
    ("double precision", "NaN", "nan"),
    ("double precision", "-Infinity", "-inf"),
    ("numeric", "12345678901234567890.1200", "Decimal('12345678901234567890.1200')"),
    ("numeric", "NaN", "Decimal('NaN')"),
    ("text", "Ünï\n\u2028}\r{\"", None),
    ("varchar", "a", "'a'"),
    ("bpchar", "a  ", "'a  '"),
    ("name", "a", "'a'"),
    ("bytea", "00ff", "b'\\x00\\xff'"),
    ("date", "2024-05-01", "datetime.date(2024, 5, 1)"),
    ("time", "12:00:00.123456", "datetime.time(12, 0, 0, 123456)"),
    ("timestamp", "2024-05-01T12:00:00.123456", "datetime.datetime(2024, 5, 1, 12, 0, 0, 123456)"),
    ("timestamptz", "2024-05-01T12:00:00.000000Z", "datetime.datetime(2024, 5, 1, 12, 0, tzinfo=datetime.timezone.utc)"),
    ("interval", "P1Y2M3DT4H5M6.7S", "'P1Y2M3DT4H5M6.7S'"),
    ("uuid", "12345678-1234-5678-1234-567812345678", "UUID('12345678-1234-5678-1234-567812345678')"),
    ("json", '{"a":[1,null]}', "{'a': [1, None]}"),
    ("jsonb", '"text"', "'text'"),
    ("jsonb", '{"a":0.25,"b":-1234567.1234567}', "{'a': 0.25, 'b': -1234567.1234567}"),
    ("jsonb", '{"a":[0.12345678901234567890,1E+400]}', "{'a': [Decimal('0.12345678901234567890'), Decimal('1E+400')]}"),
    ("integer[]", [1, None, 2], "[1, None, 2]"),
    ("numeric[]", ["1.10"], "[Decimal('1.10')]"),
    ("uuid[]", [], "[]"),
    ("jsonb[]", ['{"a":1}', None], "[{'a': 1}, None]"),
]


@pytest.mark.parametrize("task", ["one", "many"])
def every_type_is_seen_in_python_and_goes_back_as_it_came(workshop, task):
    runner = workshop.ready(ECHO.replace("return row\n", "print(list(map(repr, row.values()))); return row\n"))
    columns = {f"c{index}": kind for index, (kind, _, _) in enumerate(VALUES)}
    row = {f"c{index}": value for index, (_, value, _) in enumerate(VALUES)}
    empty = dict.fromkeys(columns)
    header, rows = runner.rows(task, columns, [row, empty])
    assert rows == [row, empty]
    assert header["done"]["rejects"] == []
    assert {column["name"]: column["type"] for column in header["done"]["columns"]} == columns
    if task == "one":
        seen = eval(runner.printed().splitlines()[0])
        for (kind, _, expected), value in zip(VALUES, seen):
            assert expected is None or value == expected, kind


@pytest.mark.parametrize(("kind", "value"), [
    ("date", "infinity"), ("date", "12024-01-01"), ("date", "0044-03-15 BC"), ("time", "24:00:00"),
    ("timestamp", "-infinity"), ("timestamp", "12024-01-01T00:00:00.000000"),
    ("timestamptz", "infinity"), ("timestamptz", "12024-01-01T00:00:00.000000Z"),
])
def a_time_that_python_has_no_form_for_is_seen_as_text_and_goes_back(workshop, kind, value):
    header, rows = workshop.ready(ECHO).rows("one", {"at": kind}, [{"at": value}])
    assert rows == [{"at": value}]
    assert header["done"]["columns"] == [{"name": "at", "type": kind}]


@pytest.mark.parametrize(("value", "kind", "travels"), [
    ("True", "boolean", True),
    ("5", "bigint", 5),
    ("1.5", "double precision", 1.5),
    ("float('inf')", "double precision", "Infinity"),
    ("Decimal('1E+3')", "numeric", "1000"),
    ("'x'", "text", "x"),
    ("b'\\xff'", "bytea", "ff"),
    ("datetime.date(2024, 5, 1)", "date", "2024-05-01"),
    ("datetime.time(1, 2)", "time", "01:02:00.000000"),
    ("datetime.datetime(2024, 5, 1)", "timestamp", "2024-05-01T00:00:00.000000"),
    ("datetime.datetime(2024, 5, 1, tzinfo=BERLIN)", "timestamptz", "2024-04-30T22:00:00.000000Z"),
    ("UUID(int=1)", "uuid", "00000000-0000-0000-0000-000000000001"),
    ("{'a': [1]}", "jsonb", '{"a":[1]}'),
    ("{'a': [Decimal('0.12345678901234567890'), None], 7: 'b'}", "jsonb", '{"a":[0.12345678901234567890,null],"7":"b"}'),
    ("[{'a': 1}]", "jsonb", '[{"a":1}]'),
    ("[[1], [2]]", "jsonb", "[[1],[2]]"),
    ("['a', None]", "text[]", ["a", None]),
    ("(1, 2.5)", "double precision[]", [1, 2.5]),
    ("[]", "text[]", []),
    ("None", "null", None),
])
def a_new_column_has_the_type_of_its_values(workshop, value, kind, travels):
    runner = workshop.ready(f'''
        import datetime
        from decimal import Decimal
        from uuid import UUID
        from vitrina import transform
        BERLIN = datetime.timezone(datetime.timedelta(hours=2))
        @transform
        def one(row: dict): return {{**row, "new": {value}}}
    ''')
    header, rows = runner.rows("one", {"id": "integer"}, [{"id": 1}])
    assert header["done"]["columns"] == [{"name": "id", "type": "integer"}, {"name": "new", "type": kind}]
    assert rows == [{"id": 1, "new": travels}]


def _returning(workshop, rows, output=None):
    return workshop.ready(f'''
        import datetime
        from decimal import Decimal
        from vitrina import transform
        @transform(output={output!r})
        def many(given: list[dict]): return {rows}
    ''')


def _columns(header):
    return [(column["name"], column["type"]) for column in header["done"]["columns"]]


def rows_of_int_and_float_are_double_precision(workshop):
    header, _ = _returning(workshop, '[{"a": 1, "b": [1]}, {"a": 1.5, "b": [2.5]}]').rows("many", {}, [])
    assert _columns(header) == [("a", "double precision"), ("b", "double precision[]")]


def an_empty_list_takes_the_type_of_the_lists_beside_it(workshop):
    header, _ = _returning(workshop, '[{"a": [], "b": []}, {"a": [1], "b": {}}]').rows("many", {}, [])
    assert _columns(header) == [("a", "bigint[]"), ("b", "jsonb")]


@pytest.mark.parametrize(("values", "one", "other"), [
    ('1, "a"', "bigint (int)", "text (str)"),
    ('{}, "a"', "jsonb (dict)", "text (str)"),
    ('datetime.date(2024, 1, 1), datetime.datetime(2024, 1, 1)', "date (date)", "timestamp (datetime)"),
    ('[1, "a"], None', "bigint (int)", "text (str)"),
])
def values_of_several_types_are_an_error_that_says_what_to_declare(workshop, values, one, other):
    runner = _returning(workshop, f'[{{"price": value}} for value in ({values})]')
    error = runner.rows("many", {}, [])[0]["error"]
    assert error["kind"] == "contract"
    for words in ('column "price"', one, other, 'output={"price": '):
        assert words in error["message"]


def rows_of_one_batch_must_have_the_same_columns(workshop):
    header, _ = _returning(workshop, '[{"a": 1, "b": "y"}, {"b": "x"}]').rows("many", {"b": "varchar"}, [])
    error = header["error"]
    assert error["kind"] == "contract"
    assert 'column "a" is in some rows and not in others' in error["message"]


def an_input_column_that_no_row_has_any_more_is_gone(workshop):
    header, _ = _returning(workshop, '[{"c": 1, "a": 1}]').rows("many", {"a": "integer", "b": "text"}, [])
    assert _columns(header) == [("a", "integer"), ("c", "bigint")]


def an_old_column_whose_values_do_not_fit_is_typed_anew(workshop):
    runner = _returning(workshop, '[{"a": 40000, "b": "x", "c": 1}]')
    header, _ = runner.rows("many", {"a": "smallint", "b": "integer", "c": "numeric"}, [])
    assert _columns(header) == [("a", "bigint"), ("b", "text"), ("c", "numeric")]


def a_result_without_rows_has_the_declared_columns(workshop):
    header, rows = _returning(workshop, "[]", {"b": "date"}).rows("many", {"a": "integer"}, [{"a": 1}])
    assert (_columns(header), rows) == ([("b", "date")], [])


def a_result_without_rows_or_declaration_has_the_columns_of_the_call(workshop):
    header, rows = _returning(workshop, "[]").rows("many", {"a": "integer"}, [{"a": 1}])
    assert (_columns(header), rows) == ([("a", "integer")], [])


def a_declared_type_wins_over_the_type_of_the_values(workshop):
    runner = _returning(workshop, '[{"a": 1, "b": [1], "c": None, "d": 5}]', {"a": "numeric", "b": "jsonb", "c": "date", "d": "bigint"})
    header, rows = runner.rows("many", {"d": "integer"}, [])
    assert _columns(header) == [("d", "bigint"), ("a", "numeric"), ("b", "jsonb"), ("c", "date")]
    assert rows == [{"d": 5, "a": "1", "b": "[1]", "c": None}]


@pytest.mark.parametrize(("rows", "words"), [
    ('[{"b": 1}]', "declared columns did not come back: slug"),
    ('[{"slug": 1}]', 'column "slug" is declared text and holds int'),
    ("None", "returned NoneType"),
    ('{"slug": "a"}', "returned dict"),
    ("['a']", "a list with str in it"),
    ("[{1: 2, 'slug': 'a'}]", "named by int"),
    ('[{"slug": "a", "b": 2 ** 70}]', 'column "b" looks like bigint and holds int beyond 64 bits'),
    ('[{"slug": "a", "b": {1, 2}}]', 'column "b" holds builtins.set'),
    ('[{"slug": "\\ud800"}]', 'column "slug" holds text with half a character'),
    ('[{"slug": "a", "b": {"x": float("nan")}}]', 'column "b" looks like jsonb and holds dict that is not JSON'),
])
def what_does_not_fit_is_an_error_of_the_contract(workshop, rows, words):
    runner = _returning(workshop, rows, {"slug": "text"})
    error = runner.rows("many", {}, [])[0]["error"]
    assert error["kind"] == "contract" and words in error["message"], error


def no_row_value_is_quoted_in_an_error_of_the_contract(workshop):
    runner = _returning(workshop, '[{"a": "secret"}]', {"a": "integer"})
    assert "secret" not in json.dumps(runner.rows("many", {}, [])[0])


@pytest.mark.parametrize(("columns", "words"), [
    ({"id": "integer"}, 'needs column "title"; the batch has id'),
    ({"title": "integer"}, 'needs column "title" as text; it is integer'),
    ({"title": "text[]"}, 'needs column "title" as text; it is text[]'),
])
def a_declared_input_that_is_not_given_is_an_error_of_the_contract(workshop, columns, words):
    runner = workshop.ready('''
        from vitrina import transform
        @transform(input={"title": "text"})
        def slug(row: dict): return row
    ''')
    error = runner.rows("slug", columns, [])[0]["error"]
    assert error["kind"] == "contract" and words in error["message"]
    assert "done" in runner.rows("slug", {"title": "varchar"}, [])[0]


def a_dict_function_changes_drops_multiplies_and_refuses_rows(workshop):
    runner = workshop.ready('''
        from vitrina import transform, Reject
        @transform
        def one(row: dict):
            match row["n"]:
                case 0: return {"n": 100}
                case 1: return None
                case 2: return [{"n": 2}, {"n": 3}]
                case 3: raise Reject("no title")
                case 4: raise Reject("odd", code="title.odd")
                case 5: return []
    ''')
    header, rows = runner.rows("one", {"n": "integer"}, [{"n": n} for n in range(6)])
    assert rows == [{"n": 100}, {"n": 2}, {"n": 3}]
    assert header["done"]["rejects"] == [
        {"row": 3, "code": "row.refused", "message": "no title"},
        {"row": 4, "code": "title.odd", "message": "odd"},
    ]


def a_dict_function_is_not_called_for_an_empty_batch_and_a_list_function_is(workshop):
    runner = workshop.ready(ECHO.replace(": return", ": print('called'); return"))
    assert runner.rows("one", {"a": "text"}, [])[1] == []
    assert runner.printed() == ""
    assert runner.rows("many", {"a": "text"}, [])[1] == []
    assert runner.printed() == "called\n"


def a_list_function_refuses_rows_by_themselves_or_by_index(workshop):
    runner = workshop.ready('''
        from vitrina import transform
        @transform
        def many(rows: list[dict], context):
            context.reject(rows[2], "third", code="a.b")
            context.reject(0, "first")
            context.reject(0, "first again")
            rows.reverse()
            return (row for row in rows)
    ''')
    header, rows = runner.rows("many", {"n": "integer"}, [{"n": 7}] * 4)
    assert rows == [{"n": 7}] * 2
    told = [(each["row"], each["code"], each["message"]) for each in header["done"]["rejects"]]
    assert told == [(0, "row.refused", "first"), (2, "a.b", "third")]


@pytest.mark.parametrize("what", ["dict(rows[0])", "2", "-1", "True", "'a'", "None"])
def a_reject_of_a_row_that_is_not_there_is_an_error_of_the_contract(workshop, what):
    runner = workshop.ready(f'''
        from vitrina import transform
        @transform
        def many(rows: list[dict], context):
            context.reject({what}, "why")
            return rows
    ''')
    error = runner.rows("many", {"n": "integer"}, [{"n": 1}, {"n": 2}])[0]["error"]
    assert error["kind"] == "contract" and error["line"] == "films.py:5 in many"


def a_raised_reject_that_tells_no_row_is_an_error_of_the_contract(workshop):
    runner = workshop.ready('''
        from vitrina import transform, Reject
        @transform
        def many(rows: list[dict]):
            raise Reject("no title")
    ''')
    error = runner.rows("many", {"n": "integer"}, [{"n": 1}])[0]["error"]
    assert error["kind"] == "contract" and "context.reject" in error["message"]


def the_context_tells_the_call(workshop):
    runner = workshop.ready('''
        from vitrina import transform, Context
        @transform
        def one(row: dict, call: Context):
            return {"a": [call.pipeline, call.run_id, str(call.batch), call.mode, *call.columns.values()]}
    ''')
    assert runner.rows("one", {"n": "integer"}, [{"n": 1}])[1] == [{"a": ["films", "r1", "3", "full", "integer"]}]
