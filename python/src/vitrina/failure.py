"""An exception as the runner shows it: the user's own line first, the machinery left out."""

from __future__ import annotations

import linecache
import os
import sysconfig
from collections.abc import Iterator
from types import TracebackType
from typing import Any, NamedTuple

from .errors import ROW_ATTRIBUTE, ContractError, Retry

MAX_TRACEBACK_BYTES = 8 * 1024
MAX_MESSAGE_BYTES = 2 * 1024
MAX_FRAMES = 40
MAX_CAUSES = 5

_SDK = os.path.dirname(os.path.abspath(__file__))
_INSTALLED = (f"{os.sep}site-packages{os.sep}", f"{os.sep}dist-packages{os.sep}")
_STANDARD = tuple(
    resolve(sysconfig.get_path(name)) + os.sep
    for name in ("stdlib", "platstdlib")
    for resolve in (os.path.abspath, os.path.realpath)
)


class Frame(NamedTuple):
    file: str
    line: int
    function: str
    module: str

    def shown(self) -> str:
        text = linecache.getline(self.file, self.line).strip()
        return f"{os.path.basename(self.file)}:{self.line}, in {self.function}" + (f": {text}" if text else "")


def describe(error: BaseException, modules: list[str]) -> dict[str, Any]:
    """The body of an `error` frame. `modules` are the user's own, wherever they are installed."""
    try:
        return _described(error, modules)
    except (MemoryError, RecursionError):
        # No room to say more.
        return {"kind": "exception", "type": type(error).__name__, "message": "", "line": "", "traceback": ""}


def _described(error: BaseException, modules: list[str]) -> dict[str, Any]:
    frames = _ordered(error, modules)
    top = frames[0] if frames else None
    return {
        "kind": _kind(error),
        "type": type(error).__name__,
        "message": cut(message_of(error), MAX_MESSAGE_BYTES),
        "line": f"{os.path.basename(top.file)}:{top.line} in {top.function}" if top else "",
        "traceback": cut("\n".join(_lines(error, modules)), MAX_TRACEBACK_BYTES),
    }


def _kind(error: BaseException) -> str:
    if isinstance(error, ContractError):
        return "contract"
    return "retry" if isinstance(error, Retry) else "exception"


def message_of(error: BaseException) -> str:
    try:
        return str(error)
    except BaseException as broken:
        return f"its message cannot be read ({type(broken).__name__})"


def cut(text: str, limit: int) -> str:
    """At most so many bytes of UTF-8, and valid: half a character would break the frame."""
    data = text.encode("utf-8", "replace")
    if len(data) <= limit:
        return data.decode()
    mark = " …"
    return data[: limit - len(mark.encode())].decode("utf-8", "ignore") + mark


def _lines(error: BaseException, modules: list[str]) -> Iterator[str]:
    for depth, cause in enumerate(_causes(error)):
        if depth:
            yield f"caused by {type(cause).__name__}: {cut(message_of(cause), 500)}"
        frames = _ordered(cause, modules)
        for frame in frames[:MAX_FRAMES]:
            yield frame.shown()
        if len(frames) > MAX_FRAMES:
            yield f"… {len(frames) - MAX_FRAMES} more"
    row = getattr(error, ROW_ATTRIBUTE, None)
    if row is not None:
        yield f"in row {row} of this batch"


def _causes(error: BaseException) -> Iterator[BaseException]:
    seen: set[int] = set()
    cause: BaseException | None = error
    while cause is not None and id(cause) not in seen and len(seen) < MAX_CAUSES:
        yield cause
        seen.add(id(cause))
        cause = cause.__cause__ or (None if cause.__suppress_context__ else cause.__context__)


def _ordered(error: BaseException, modules: list[str]) -> list[Frame]:
    """The user's frames, innermost first; behind them those of libraries."""
    frames = [frame for frame in _walked(error.__traceback__) if not _is_machinery(frame)]
    frames.reverse()
    own = [frame for frame in frames if _is_own(frame, modules)]
    rest = [frame for frame in frames if not _is_own(frame, modules)]
    return _syntax(error) + own + rest


def _syntax(error: BaseException) -> list[Frame]:
    """A file that cannot be parsed has no frame of its own."""
    if isinstance(error, SyntaxError) and error.filename and error.lineno:
        return [Frame(error.filename, error.lineno, "<module>", "")]
    return []


def _walked(traceback: TracebackType | None) -> Iterator[Frame]:
    while traceback is not None:
        code = traceback.tb_frame.f_code
        module = str(traceback.tb_frame.f_globals.get("__name__", ""))
        yield Frame(code.co_filename, traceback.tb_lineno or 0, code.co_name, module)
        traceback = traceback.tb_next


def _is_machinery(frame: Frame) -> bool:
    is_import = frame.file.startswith("<frozen") or frame.module == "importlib"
    return is_import or os.path.dirname(os.path.abspath(frame.file)) == _SDK


def _is_own(frame: Frame, modules: list[str]) -> bool:
    if frame.module.split(".")[0] in {module.split(".")[0] for module in modules}:
        return True
    file = os.path.abspath(frame.file)
    is_library = file.startswith(_STANDARD) or any(folder in file for folder in _INSTALLED)
    return not frame.file.startswith("<") and not is_library
