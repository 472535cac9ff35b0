"""One call of a task: decode the batch, call the function, encode what it returned.

The worker and `vitrina.testing` both come through here, so that a test sees what the runner does.
"""

from __future__ import annotations

import json
import operator
from collections.abc import Callable, Iterator
from typing import Any

from . import context as contexts
from . import postgres, rows
from .context import Context
from .errors import ROW_ATTRIBUTE, ContractError, Reject
from .failure import MAX_MESSAGE_BYTES, cut
from .registry import Task

Header = dict[str, Any]
Body = bytes | bytearray | memoryview
Answer = tuple[Header, Body]

_NO_REFUSALS = "a source refuses no rows; hint: do not yield them"


def transform(task: Task, header: Header, body: bytes | bytearray) -> Answer:
    columns = {column["name"]: column["type"] for column in header["columns"]}
    _check_input(task, columns)
    context = contexts.of_call(header.get("context") or {}, columns)
    call = _rows_call if task.type.travels == "rows" else _arrow_call
    done, result = call(task, context, body)
    rejects = [
        {"row": refusal.row, "code": cut(refusal.code, 200), "message": cut(refusal.message, MAX_MESSAGE_BYTES)}
        for refusal in sorted(context.rejects)
    ]
    return {"done": {"rejects": rejects, **done}}, result


def _check_input(task: Task, columns: dict[str, str]) -> None:
    for name, pg_type in (task.input or {}).items():
        if name not in columns:
            raise ContractError(f'{task.name} needs column "{name}"; the batch has {", ".join(columns)}')
        if not postgres.same(columns[name], pg_type):
            raise ContractError(f'{task.name} needs column "{name}" as {pg_type}; it is {columns[name]}')


def _rows_call(task: Task, context: Context, body: bytes | bytearray) -> Answer:
    batch = rows.decode(body, context.columns)
    context._locate = _by_identity(batch)
    called = _each if task.type.name == "dict" else _all
    columns, lines = rows.encode(called(task, context, batch), context.columns, task.output)
    return {"columns": listed(columns)}, lines


def listed(columns: dict[str, str]) -> list[Header]:
    return [{"name": name, "type": pg_type} for name, pg_type in columns.items()]


def _all(task: Task, context: Context, batch: list[rows.Row]) -> list[rows.Row]:
    # The function may change the list it is given; the rows must stay alive to be known again.
    result = rows.checked(_without_reject(task, lambda: task.call(list(batch), context)))
    refused = {id(batch[refusal.row]) for refusal in context.rejects}
    return [row for row in result if id(row) not in refused] if refused else result


def _each(task: Task, context: Context, batch: list[rows.Row]) -> list[rows.Row]:
    result: list[rows.Row] = []
    for index, row in enumerate(batch):
        try:
            made = _several(task.call(row, context))
        except Reject as refusal:
            context._refuse(index, refusal.message, refusal.code)
            continue
        except BaseException as error:
            _note_row(error, index)
            raise
        if not context._is_refused(index):
            result.extend(made)
    return result


def _several(made: Any) -> list[rows.Row]:
    if made is None:
        return []
    return [made] if isinstance(made, dict) else rows.checked(made)


def _note_row(error: BaseException, index: int) -> None:
    try:
        setattr(error, ROW_ATTRIBUTE, index)
    except Exception:
        pass  # an exception with slots: it goes without


def _without_reject(task: Task, call: Callable[[], Any]) -> Any:
    try:
        result = call()
        return list(result) if isinstance(result, Iterator) else result
    except Reject as refusal:
        raise ContractError(
            f'{task.name} raised Reject("{refusal.message}"), which tells no row; '
            "hint: context.reject(row, why), or write it for one dict"
        ) from refusal


def _by_identity(batch: list[rows.Row]) -> Callable[[Any], list[int]]:
    known: dict[int, int] = {}

    def locate(row: Any) -> list[int]:
        if not isinstance(row, dict):
            return [_index(row, len(batch))]
        if not known:
            known.update((id(each), index) for index, each in enumerate(batch))
        if id(row) not in known:
            raise ContractError("a rejected row is not one of this batch; hint: give the row itself, not a copy")
        return [known[id(row)]]

    return locate


def _index(row: Any, count: int) -> int:
    try:
        index = operator.index(row)
    except TypeError:
        raise ContractError(f"a row is rejected by {type(row).__name__}, not by itself or its index") from None
    if isinstance(row, bool) or not 0 <= index < count:
        raise ContractError(f"rejected row {row} is not in the batch, which has {count}")
    return index


def _arrow_call(task: Task, context: Context, body: bytes | bytearray) -> Answer:
    from . import arrow

    batch = arrow.read(body)
    context._locate = lambda chosen: _chosen(chosen, batch.num_rows)
    subject = arrow.given(batch, task.type.name)
    result = _without_reject(task, lambda: task.call(subject, context))
    if result is subject:
        result = arrow.without(result, {refusal.row for refusal in context.rejects}, batch.num_rows)
    return {}, arrow.write(arrow.returned(result, batch.schema, task.output))


def _chosen(chosen: Any, count: int) -> list[int]:
    """Row numbers from an index, several, or a mask of whatever library."""
    for method in ("to_pylist", "to_list", "tolist", "as_py"):
        if hasattr(chosen, method):
            chosen = getattr(chosen, method)()
            break
    if isinstance(chosen, (str, bytes, dict)) or not hasattr(chosen, "__iter__"):
        return [_index(chosen, count)]
    items = list(chosen)
    if not any(isinstance(item, bool) for item in items):
        return [_index(item, count) for item in items]
    if len(items) != count:
        raise ContractError(f"a mask of rejected rows has {len(items)} values, the batch has {count} rows")
    return [row for row, refused in enumerate(items) if refused is True]


class Reading:
    """A source that is being read: its generator, and how far it came."""

    def __init__(self, task: Task, header: Header) -> None:
        self._task = task
        self._context = contexts.of_call(header.get("context") or {}, {})
        self._context._locate = _refuse_nothing
        self._position = header.get("position")
        self._items: Iterator[Any] | None = None
        self._returned: Any = None

    def next(self) -> Answer:
        """The next batch, or the end. The function is called with the first."""
        try:
            if self._items is None:
                self._items = self._started()
            limit = max(1, self._context.batch_size) if self._task.type.name == "dict" else 1
            items = self._taken(limit)
        except Reject as refusal:
            raise ContractError(_NO_REFUSALS) from refusal
        if not items:
            return self._end()
        return self._answer(items if self._task.type.name == "dict" else items[0])

    def _started(self) -> Iterator[Any]:
        made = self._task.call(self._position, self._context)
        if not hasattr(made, "__iter__"):
            raise ContractError(f"{self._task.name} returned {type(made).__name__}; hint: yield rows, position")
        return iter(made)

    def close(self) -> None:
        close = getattr(self._items, "close", None)
        if close is not None:
            close()

    def _taken(self, limit: int) -> list[Any]:
        """Batches come one by one; single rows are gathered, and the last one's position counts."""
        assert self._items is not None
        taken: list[Any] = []
        while len(taken) < limit:
            try:
                item = next(self._items)
            except StopIteration as end:
                self._returned = end.value if end.value is not None else self._returned
                break
            if not isinstance(item, tuple) or len(item) != 2:
                raise ContractError(f"{self._task.name} yielded {type(item).__name__}, not (rows, position)")
            taken.append(item[0])
            self._position = _json(item[1])
        return taken

    def _answer(self, batch: Any) -> Answer:
        if self._task.type.travels == "rows":
            columns, body = rows.encode(rows.checked(batch), {}, self._task.output)
            return {"batch": {"position": self._position, "columns": listed(columns)}}, body
        from . import arrow

        made = arrow.returned(batch, None, self._task.output)
        return {"batch": {"position": self._position}}, arrow.write(made)

    def _end(self) -> Answer:
        position = self._position if self._returned is None else _json(self._returned)
        return {"end": {"position": position}}, b""


def _json(position: Any) -> Any:
    try:
        json.dumps(position, allow_nan=False, ensure_ascii=False).encode()
    except (TypeError, ValueError) as error:
        raise ContractError(f"a position must be JSON: {error}") from None
    return position


def _refuse_nothing(_: Any) -> list[int]:
    raise ContractError(_NO_REFUSALS)
