"""What a function may know of the call it serves, and where it refuses rows."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from .errors import ROW_REFUSED


class Refusal(NamedTuple):
    """A row that was refused. `row` counts from 0, or is what was given where there is no batch."""

    row: Any
    code: str
    message: str


class Context:
    """Handed to functions that ask for it. In a test, `Context()` is enough."""

    def __init__(
        self,
        pipeline: str = "",
        run_id: str = "",
        batch: int = 0,
        mode: str = "",
        batch_size: int = 1000,
        columns: Mapping[str, str] | None = None,
    ) -> None:
        self.pipeline = pipeline
        self.run_id = run_id
        self.batch = batch
        self.mode = mode
        self.batch_size = batch_size
        self.columns: Mapping[str, str] = dict(columns or {})
        self._refusals: list[Refusal] = []
        self._seen: set[Any] = set()
        self._locate: Callable[[Any], list[int]] | None = None

    @property
    def rejects(self) -> list[Refusal]:
        """What was refused so far, in the order of the calls."""
        return list(self._refusals)

    def reject(self, rows: Any, message: str, *, code: str = ROW_REFUSED) -> None:
        """Refuses rows of this batch: the row itself or its index; for Arrow types an index,
        several, or a boolean mask. The first reason given for a row is the one that counts."""
        for row in self._located(rows):
            self._refuse(row, message, code)

    def _located(self, rows: Any) -> list[Any]:
        return self._locate(rows) if self._locate else [rows]

    def _refuse(self, row: Any, message: str, code: str) -> None:
        if self._locate is not None:
            if row in self._seen:
                return
            self._seen.add(row)
        self._refusals.append(Refusal(row, str(code), str(message)))

    def _is_refused(self, row: int) -> bool:
        return row in self._seen


def of_call(fields: Mapping[str, Any], columns: Mapping[str, str]) -> Context:
    """Unknown fields are passed over, so that a newer runner may say more."""
    known = ("pipeline", "run_id", "batch", "mode", "batch_size")
    return Context(columns=columns, **{name: fields[name] for name in known if name in fields})
