"""Which batch type a function asks for, read from its annotations without importing any library."""

from __future__ import annotations

import collections.abc
import importlib.util
import inspect
import sys
import typing
from collections.abc import Callable
from typing import Any, Literal, NamedTuple

from .context import Context
from .errors import DeclarationError


class BatchType(NamedTuple):
    name: str
    travels: Literal["arrow", "rows"]
    needs: tuple[str, ...]


KNOWN = {
    kind.name: kind
    for kind in (
        BatchType("pyarrow.RecordBatch", "arrow", ("pyarrow",)),
        BatchType("polars.DataFrame", "arrow", ("polars", "pyarrow")),
        BatchType("pandas.DataFrame", "arrow", ("pandas", "pyarrow")),
        BatchType("list[dict]", "rows", ()),
        BatchType("dict", "rows", ()),
    )
}

# What people call the libraries. Used only where a name exists for type checkers alone.
_NICKNAMES = {"pa": "pyarrow", "pl": "polars", "pd": "pandas"}
_STREAMS = (
    collections.abc.Iterator,
    collections.abc.Iterable,
    collections.abc.Generator,
)


def signature(function: Callable[..., Any]) -> inspect.Signature:
    if sys.version_info >= (3, 14):
        # Names that exist for type checkers alone must not fail here.
        import annotationlib

        return inspect.signature(function, annotation_format=annotationlib.Format.FORWARDREF)
    return inspect.signature(function)


def resolve(annotation: Any, function: Callable[..., Any]) -> Any:
    """The object a string annotation names, or the string where it names nothing yet."""
    annotation = getattr(annotation, "__forward_arg__", annotation)
    if not isinstance(annotation, str):
        return annotation
    plain = inspect.unwrap(function)
    try:
        return eval(annotation, getattr(plain, "__globals__", {}))
    except Exception:
        return annotation


def is_context(parameter: inspect.Parameter, function: Callable[..., Any]) -> bool:
    annotation = resolve(parameter.annotation, function)
    named = isinstance(annotation, str) and annotation.split(".")[-1] == "Context"
    return parameter.name == "context" or annotation is Context or named


def batch_type(annotation: Any, where: str) -> BatchType:
    """The batch type an annotation names, with the libraries it needs at hand."""
    if annotation is inspect.Parameter.empty:
        raise DeclarationError(f"{where} has no annotation, so its batch type is unknown; known are {_listed()}")
    name = _name_of(annotation)
    if name not in KNOWN:
        raise DeclarationError(f"{where} is annotated {_shown(annotation)}; known are {_listed()}")
    kind = KNOWN[name]
    missing = [library for library in kind.needs if not _installed(library)]
    if missing:
        extra = "arrow" if kind.needs[0] == "pyarrow" else kind.needs[0]
        lack = " and ".join(missing)
        raise DeclarationError(
            f"{where} is annotated {name}, and {lack} is not installed; hint: install it, or vitrina with its extra [{extra}]"
        )
    return kind


def stream_item(annotation: Any) -> Any:
    """`X` of `Iterator[tuple[X, position]]`, or the empty mark."""
    if typing.get_origin(annotation) not in _STREAMS:
        return inspect.Parameter.empty
    item = typing.get_args(annotation)[0]
    arguments = typing.get_args(item)
    if typing.get_origin(item) is not tuple or len(arguments) != 2:
        return inspect.Parameter.empty
    return arguments[0]


def _name_of(annotation: Any) -> str:
    if isinstance(annotation, str):
        return _name_of_text(annotation)
    origin = typing.get_origin(annotation)
    arguments = typing.get_args(annotation)
    if annotation is dict or origin is dict:
        return "dict"
    if origin is list and arguments and _name_of(_unquoted(arguments[0])) == "dict":
        return "list[dict]"
    module = getattr(annotation, "__module__", "").split(".")[0]
    return f"{module}.{getattr(annotation, '__qualname__', '')}"


def _unquoted(annotation: Any) -> Any:
    return getattr(annotation, "__forward_arg__", annotation)


def _name_of_text(text: str) -> str:
    text = text.strip().replace("List[", "list[").replace("Dict", "dict").replace("typing.", "")
    if text.startswith("list[dict"):
        return "list[dict]"
    if text == "dict" or text.startswith("dict["):
        return "dict"
    library, _, rest = text.partition(".")
    return f"{_NICKNAMES.get(library, library)}.{rest}"


def _installed(library: str) -> bool:
    if library in sys.modules:
        return sys.modules[library] is not None
    return importlib.util.find_spec(library) is not None


def _listed() -> str:
    return ", ".join(KNOWN)


def _shown(annotation: Any) -> str:
    return annotation if isinstance(annotation, str) else inspect.formatannotation(annotation)
