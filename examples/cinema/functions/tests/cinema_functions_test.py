from datetime import datetime, timezone
from uuid import UUID

import pytest
from cinema_functions import film_search, slug
from vitrina.testing import Refused, run

COLUMNS = {
    "id": "uuid", "title": "text", "description": "text", "genres": "text[]", "persons": "text[]", "modified": "timestamptz",
}  # fmt: skip


def film(number: int, title: str, **changes: object) -> dict:
    modified = datetime(2024, 5, 1, tzinfo=timezone.utc)
    row = {"id": UUID(int=number), "title": title, "description": None, "genres": [], "persons": [], "modified": modified}
    return row | changes


@pytest.mark.parametrize(
    ("title", "expected"),
    [
        ("Star Wars: Episode IV - A New Hope", "star-wars-episode-iv-a-new-hope"),
        ("Весёлые ребята", "vesyolye-rebyata"),
        ("Подъезд №5", "podezd-5"),
        ("  ...And Justice for All ", "and-justice-for-all"),
        ("千と千尋の神隠し", ""),
    ],
)
def test_a_slug_has_nothing_but_letters_digits_and_single_hyphens(title: str, expected: str) -> None:
    assert slug(title) == expected


def test_a_film_is_found_by_its_title_description_genres_and_persons() -> None:
    ivan = film(1, "Ёлки", description="Новый год", genres=["Comedy"], persons=["Иван Ургант"])
    result = run(film_search, [ivan, film(2, "Solo")], columns=COLUMNS)
    assert [row["search_text"] for row in result.rows] == ["Елки Новый год Comedy Иван Ургант", "Solo"]
    assert [row["slug"] for row in result.rows] == ["yolki", "solo"]
    assert result.rows[0]["id"] == UUID(int=1)


def test_a_film_whose_title_cannot_be_an_address_is_refused_alone() -> None:
    result = run(film_search, [film(1, "!!!"), film(2, "Solo")], columns=COLUMNS)
    assert [row["slug"] for row in result.rows] == ["solo"]
    assert result.rejects == [Refused(0, "nothing of the title can stand in an address", "title")]
