from pathlib import Path

from my_function import my_function
from vitrina.testing import Refused, golden, run


def test_a_title_is_trimmed() -> None:
    result = run(my_function, [{"id": 1, "title": "  Das Boot "}])
    assert result.rows == [{"id": 1, "title": "Das Boot"}]


def test_a_row_without_a_title_is_refused_alone() -> None:
    result = run(my_function, [{"id": 1, "title": ""}, {"id": 2, "title": "Solo"}])
    assert [row["id"] for row in result.rows] == [2]
    assert result.rejects == [Refused(0, "there is no title", "title.missing")]


def test_the_rows_of_the_file_beside_come_out_as_it_expects() -> None:
    golden(my_function, Path(__file__).with_name("my_function.json"))
