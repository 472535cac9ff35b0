"""Functions for pipelines. A runner registers what is decorated; pipelines call it by its name."""

from __future__ import annotations

from vitrina import Reject, transform


@transform(input={"title": "text"}, output={"title": "text"})
def my_function(row: dict) -> dict:
    """Trims the title; a row without one is refused. Put what your rows need in its place."""
    title = (row["title"] or "").strip()
    if not title:
        raise Reject("there is no title", code="title.missing")
    return row | {"title": title}
