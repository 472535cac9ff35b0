"""What the cinema's search box and address bar want of a film, and SQL does not say well."""

from __future__ import annotations

import re

from vitrina import Reject, transform

_LATIN = str.maketrans(
    {
        "а": "a", "б": "b", "в": "v", "г": "g", "д": "d", "е": "e", "ё": "yo", "ж": "zh", "з": "z", "и": "i", "й": "y",
        "к": "k", "л": "l", "м": "m", "н": "n", "о": "o", "п": "p", "р": "r", "с": "s", "т": "t", "у": "u", "ф": "f",
        "х": "kh", "ц": "ts", "ч": "ch", "ш": "sh", "щ": "shch", "ъ": "", "ы": "y", "ь": "", "э": "e", "ю": "yu",
        "я": "ya",
    }
)  # fmt: skip


def slug(title: str) -> str:
    """A title as an address shows it: `Весёлые ребята` becomes `vesyolye-rebyata`."""
    return re.sub(r"[^a-z0-9]+", "-", title.lower().translate(_LATIN)).strip("-")


@transform(input={"id": "uuid", "title": "text"}, output={"slug": "text", "search_text": "text"})
def film_search(row: dict) -> dict:
    """A slug for the film's address, and one text of all that people search a film by."""
    name = slug(row["title"])
    if not name:
        raise Reject("nothing of the title can stand in an address", code="title")
    parts = [row["title"], row["description"], *row["genres"], *row["persons"]]
    text = " ".join(part for part in parts if part).replace("ё", "е").replace("Ё", "Е")
    return {"id": row["id"], "slug": name, "search_text": text, "modified": row["modified"]}
