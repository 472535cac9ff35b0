"""Frames over two pipes that nothing but the worker may use."""

from __future__ import annotations

import fcntl
import json
import os
import struct
from typing import Any

LENGTHS = struct.Struct("<IQ")
_WIDTH = 1 << 20
_LOWEST = 10


class Ended(Exception):
    """The other side has closed its end between two frames."""


class Broken(Exception):
    """The other side has gone within a frame, or speaks another language."""


class Pipe:
    """Owns both descriptors. A forked child finds them closed, and is told by `is_mine`."""

    def __init__(self, read: int, write: int) -> None:
        self._read = _moved(read)
        self._write = _moved(write)
        self._owner = os.getpid()
        os.register_at_fork(after_in_child=self._abandon)

    @property
    def is_mine(self) -> bool:
        return os.getpid() == self._owner

    def receive(self) -> tuple[dict[str, Any], bytearray]:
        header_length, body_length = LENGTHS.unpack(self._exactly(LENGTHS.size, may_end=True))
        header = self._exactly(header_length)
        body = self._exactly(body_length)
        try:
            parsed = json.loads(header)
        except ValueError as error:
            raise Broken(f"a header is not JSON: {error}") from None
        if not isinstance(parsed, dict):
            raise Broken("a header is not a JSON object")
        return parsed, body

    def send(self, header: dict[str, Any], body: bytes | bytearray | memoryview = b"") -> None:
        text = json.dumps(header, ensure_ascii=False, allow_nan=False).encode("utf-8", "replace")
        view = memoryview(body)
        self._all(memoryview(LENGTHS.pack(len(text), view.nbytes) + text))
        self._all(view)

    def _exactly(self, count: int, may_end: bool = False) -> bytearray:
        data = bytearray(count)
        view, filled = memoryview(data), 0
        while filled < count:
            got = os.readv(self._read, [view[filled:]])
            if got == 0:
                raise Ended() if may_end and filled == 0 else Broken("the runner went within a frame")
            filled += got
        return data

    def _all(self, view: memoryview) -> None:
        while view.nbytes:
            view = view[os.write(self._write, view) :]

    def _abandon(self) -> None:
        """In a forked child. The numbers are forgotten as well: the child may open files under them."""
        for descriptor in (self._read, self._write):
            if descriptor >= 0:
                os.close(descriptor)
        self._read = self._write = -1


def _moved(descriptor: int) -> int:
    """To a number nobody expects, closed in every program that is started from here."""
    moved = fcntl.fcntl(descriptor, fcntl.F_DUPFD_CLOEXEC, _LOWEST)
    os.close(descriptor)
    try:
        # Fewer turns between the two processes; an unprivileged user may not have so much.
        fcntl.fcntl(moved, getattr(fcntl, "F_SETPIPE_SZ"), _WIDTH)
    except (AttributeError, OSError):
        pass
    return moved
