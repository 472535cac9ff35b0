"""The functions of this process that a runner may call by name."""

from __future__ import annotations

import hashlib
import inspect
import os
import re
import sys
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, Literal, NamedTuple, TypeVar, overload

from . import batch_types, postgres
from .batch_types import BatchType
from .context import Context
from .errors import DeclarationError

Function = TypeVar("Function", bound=Callable[..., Any])

NAME = re.compile(r"[a-z][a-z0-9_.-]{0,62}")
_TASK = "__vitrina_task__"


class Task(NamedTuple):
    """A decorated function and what its decorator and annotations say of it."""

    name: str
    kind: Literal["transform", "source"]
    type: BatchType
    function: Callable[..., Any]
    subject: str
    """The parameter that takes the batch, or a source's position."""
    context: str | None
    """The parameter that takes the context, if the function asks for one."""
    input: dict[str, str] | None
    output: dict[str, str] | None
    version_hash: str
    place: str

    def call(self, subject: Any, context: Context) -> Any:
        if self.context is None:
            return self.function(subject)
        # By name: a source may take the two in either order.
        return self.function(**{self.subject: subject, self.context: context})

    def described(self) -> dict[str, Any]:
        """As the runner publishes it."""
        return {
            "name": self.name,
            "kind": self.kind,
            "batch": self.type.travels,
            "type": self.type.name,
            "version_hash": self.version_hash,
            "doc": inspect.getdoc(self.function) or "",
            "input": self.input,
            "output": self.output,
        }


_tasks: dict[str, Task] = {}


def registry() -> Mapping[str, Task]:
    """The tasks registered so far, by name. A view: it grows as modules are imported."""
    return MappingProxyType(_tasks)


def task_of(function: Callable[..., Any]) -> Task:
    task = getattr(function, _TASK, None)
    if not isinstance(task, Task):
        name = getattr(function, "__qualname__", repr(function))
        raise DeclarationError(f"{name} is neither a transform nor a source; hint: decorate it")
    return task


@overload
def transform(function: Function, /) -> Function: ...
@overload
def transform(
    *,
    name: str | None = None,
    input: Mapping[str, str] | None = None,
    output: Mapping[str, str] | None = None,
) -> Callable[[Function], Function]: ...
def transform(
    function: Callable[..., Any] | None = None,
    /,
    *,
    name: str | None = None,
    input: Mapping[str, str] | None = None,
    output: Mapping[str, str] | None = None,
) -> Any:
    """Registers a function that turns a batch into another. Its first annotation picks the type."""

    def register(function: Function) -> Function:
        _check_function(function, "transform")
        subject, context = _transform_parameters(function)
        annotation = batch_types.resolve(subject.annotation, function)
        kind = batch_types.batch_type(annotation, f'parameter "{subject.name}" of {_place(function)}')
        return _register(function, name, "transform", kind, (subject.name, context), (input, output))

    return register if function is None else register(function)


@overload
def source(function: Function, /) -> Function: ...
@overload
def source(
    *, name: str | None = None, batch: Any = None, output: Mapping[str, str] | None = None
) -> Callable[[Function], Function]: ...
def source(
    function: Callable[..., Any] | None = None,
    /,
    *,
    name: str | None = None,
    batch: Any = None,
    output: Mapping[str, str] | None = None,
) -> Any:
    """Registers a generator of `(rows, position)`. The batch type is that of `batch=`, or of the
    return annotation `Iterator[tuple[list[dict], Any]]`."""

    def register(function: Function) -> Function:
        _check_function(function, "source")
        position, context = _source_parameters(function)
        kind = batch_types.batch_type(_yielded(function, batch), f"what {_place(function)} yields")
        return _register(function, name, "source", kind, (position, context), (None, output))

    return register if function is None else register(function)


def _register(
    function: Function,
    name: str | None,
    kind: Literal["transform", "source"],
    type: BatchType,
    parameters: tuple[str, str | None],
    columns: tuple[Mapping[str, str] | None, Mapping[str, str] | None],
) -> Function:
    name = function.__name__ if name is None else name
    if not NAME.fullmatch(name):
        raise DeclarationError(
            f'"{name}" at {_place(function)} is no name of a task: it must match {NAME.pattern}; hint: name="…"'
        )
    input, output = map(postgres.declared, columns)
    task = Task(
        name, kind, type, function, *parameters, input, output, _version_hash(function), _place(function)
    )
    earlier = _tasks.get(name)
    # A module that is imported anew registers the same place again.
    if earlier is not None and earlier.place != task.place:
        raise DeclarationError(f'two tasks are named "{name}": {earlier.place} and {task.place}')
    _tasks[name] = task
    setattr(function, _TASK, task)
    return function


def _check_function(function: Any, decorator: str) -> None:
    if not inspect.isfunction(function):
        raise DeclarationError(f"@{decorator} takes a function, not {type(function).__name__}")
    if inspect.iscoroutinefunction(function) or inspect.isasyncgenfunction(function):
        raise DeclarationError(f"{_place(function)} is async; hint: a task is a plain function")


def _transform_parameters(function: Callable[..., Any]) -> tuple[inspect.Parameter, str | None]:
    parameters = list(batch_types.signature(function).parameters.values())
    _check_by_name(parameters, function)
    if not parameters or parameters[0].kind is not inspect.Parameter.POSITIONAL_OR_KEYWORD:
        raise DeclarationError(f"{_place(function)} takes no batch; hint: def f(rows: list[dict])")
    return parameters[0], _context_among(parameters[1:], function)


def _source_parameters(function: Callable[..., Any]) -> tuple[str, str | None]:
    parameters = list(batch_types.signature(function).parameters.values())
    _check_by_name(parameters, function)
    positions = [each for each in parameters if not batch_types.is_context(each, function)]
    if not positions or positions[0].kind is not inspect.Parameter.POSITIONAL_OR_KEYWORD:
        raise DeclarationError(f"{_place(function)} takes no position; hint: def f(context, position)")
    rest = [each for each in parameters if each is not positions[0]]
    return positions[0].name, _context_among(rest, function)


_CALLABLE_BY_NAME = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)


def _check_by_name(parameters: list[inspect.Parameter], function: Callable[..., Any]) -> None:
    for parameter in parameters:
        if parameter.kind is inspect.Parameter.POSITIONAL_ONLY:
            raise DeclarationError(f'{_place(function)} takes "{parameter.name}" by position only; hint: leave out the /')


def _context_among(parameters: list[inspect.Parameter], function: Callable[..., Any]) -> str | None:
    """The parameter for the context. Any other must do without a value."""
    context = None
    for parameter in parameters:
        if context is None and batch_types.is_context(parameter, function):
            context = parameter.name
        elif parameter.default is parameter.empty and parameter.kind in _CALLABLE_BY_NAME:
            raise DeclarationError(
                f'{_place(function)} asks for "{parameter.name}", which nobody gives; '
                "hint: a task takes a batch or a position, and a Context"
            )
    return context


def _yielded(function: Callable[..., Any], batch: Any) -> Any:
    if batch is not None:
        return batch_types.resolve(batch, function)
    returned = batch_types.resolve(batch_types.signature(function).return_annotation, function)
    return batch_types.stream_item(returned)


def _place(function: Callable[..., Any]) -> str:
    code = inspect.unwrap(function).__code__
    return f"{os.path.realpath(code.co_filename)}:{code.co_firstlineno} ({function.__qualname__})"


def _version_hash(function: Callable[..., Any]) -> str:
    """Over the whole file, so that a changed helper beside the function changes it as well. A
    wrapper from another file counts with its own."""
    digest = hashlib.sha256()
    for file in sorted({_file_of(function), _file_of(inspect.unwrap(function))}):
        digest.update(_text_of(file, function))
    return digest.hexdigest()[:16]


def _file_of(function: Callable[..., Any]) -> str:
    module = sys.modules.get(function.__module__)
    return inspect.getsourcefile(function) or getattr(module, "__file__", None) or ""


def _text_of(file: str, function: Callable[..., Any]) -> bytes:
    try:
        with open(file, "rb") as source_file:
            return source_file.read().replace(b"\r\n", b"\n")
    except OSError:
        # No file: typed into a shell, or inside a zip. The function's own code has to do.
        code: bytes = inspect.unwrap(function).__code__.co_code
        return code
