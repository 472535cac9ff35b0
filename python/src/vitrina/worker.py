"""The process in which a runner calls Python: `python -m vitrina.worker --in FD --out FD --module M`.

It serves one call at a time. Whatever a function does, short of ending the process, is an error of
that batch alone. Signals are left as they are.
"""

from __future__ import annotations

import argparse
import atexit
import importlib
import os
import platform
import select
import signal
import sys
import time
from typing import Any, NoReturn

from . import __version__, calls, failure
from .errors import ContractError
from .pipe import Broken, Ended, Pipe
from .registry import Task, registry


def main() -> NoReturn:
    arguments = _arguments()
    if arguments.alive is not None:
        _follow(arguments.alive)
    pipe = Pipe(arguments.read, arguments.write)
    _set_up_streams()
    worker = Worker(pipe, arguments.module)
    try:
        code = worker.serve() if worker.start() else 1
    except KeyboardInterrupt:
        code = 130
    _leave(code)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m vitrina.worker")
    parser.add_argument("--in", dest="read", type=int, required=True, metavar="FD")
    parser.add_argument("--out", dest="write", type=int, required=True, metavar="FD")
    parser.add_argument("--alive", type=int, metavar="FD", help="hangs up when the runner is gone")
    parser.add_argument("--module", action="append", default=[], metavar="MODULE")
    return parser.parse_args()


_GRACE = 2.0


def _follow(descriptor: int) -> None:
    """Ends this worker and all that it has started when the runner is gone, whatever they do by then. In a process of its
    own: a thread would wait for the interpreter, which a regular expression may hold for years."""
    if os.fork() != 0:
        os.close(descriptor)
        return
    try:
        os.closerange(0, descriptor)
        os.closerange(descriptor + 1, 64)
        runner = select.poll()
        runner.register(descriptor, 0)
        runner.poll()
        time.sleep(_GRACE)  # an idle worker hears it as well, and leaves in order
        os.killpg(os.getpgrp(), signal.SIGKILL)
    finally:
        os._exit(0)


class Worker:
    def __init__(self, pipe: Pipe, modules: list[str]) -> None:
        self._pipe = pipe
        self._modules = modules
        self._reading: calls.Reading | None = None
        self._refused: BaseException | None = None

    def start(self) -> bool:
        """Imports the modules and tells the runner what is in them."""
        try:
            for module in self._modules:
                importlib.import_module(module)
            self._warm()
        except BaseException as error:
            self._send({"error": failure.describe(error, self._modules)})
            return False
        tasks = [task.described() for task in registry().values()]
        self._send({"ready": {"python": platform.python_version(), "sdk": __version__, "tasks": tasks}})
        return True

    def _warm(self) -> None:
        """Loads the libraries before the first batch waits for them."""
        for library in {name for task in registry().values() for name in task.type.needs}:
            importlib.import_module(library)
            importlib.import_module("vitrina.arrow")

    def serve(self) -> int:
        while True:
            try:
                header, body = self._pipe.receive()
            except Ended:
                self._close()
                return 0
            except Broken as broken:
                print(f"vitrina worker: {broken}", file=sys.stderr)
                return 1
            answer = self._answer(header, body)
            if answer is not None:
                self._send(*answer)

    def _answer(self, header: dict[str, Any], body: bytearray) -> calls.Answer | None:
        call = header.get("call")
        try:
            if call == "transform":
                return calls.transform(_task(header, "transform"), header, body)
            if call == "next":
                return self._next()
            if call == "source":
                self._open(header)
            elif call == "close":
                self._close()
            else:
                raise ContractError(f'unknown call "{call}"; known are transform, source, next, close')
            return None
        except BaseException as error:
            self._leave_child(error)
            return {"error": failure.describe(error, self._modules)}, b""

    def _open(self, header: dict[str, Any]) -> None:
        """Not answered: what is wrong with it is told to the first `next`."""
        self._close()
        try:
            self._reading = calls.Reading(_task(header, "source"), header)
        except BaseException as error:
            self._refused = error

    def _next(self) -> calls.Answer:
        if self._refused is not None:
            refused, self._refused = self._refused, None
            raise refused
        if self._reading is None:
            raise ContractError("no source is open")
        try:
            answer = self._reading.next()
        except BaseException:
            self._reading = None  # a generator that raised is over
            raise
        if "end" in answer[0]:
            self._reading = None
        return answer

    def _close(self) -> None:
        """Not answered: a generator that fails to close has nothing more to say to the run."""
        reading, self._reading, self._refused = self._reading, None, None
        if reading is None:
            return
        try:
            reading.close()
        except BaseException as error:
            self._leave_child(error)
            print(f"closing a source failed: {type(error).__name__}: {failure.message_of(error)}", file=sys.stderr)

    def _send(self, header: dict[str, Any], body: calls.Body = b"") -> None:
        _flush()
        if not self._pipe.is_mine:
            os._exit(0)  # a child that a function forked came back from it: it must not speak
        try:
            self._pipe.send(header, body)
        except BrokenPipeError:
            _leave(1)

    def _leave_child(self, error: BaseException) -> None:
        """A forked child that ends itself does so, instead of answering for its parent."""
        if not self._pipe.is_mine:
            _flush()
            code = error.code if isinstance(error, SystemExit) else 1
            os._exit(code if isinstance(code, int) else 0 if code is None else 1)


def _task(header: dict[str, Any], kind: str) -> Task:
    task = registry().get(str(header.get("task")))
    if task is None or task.kind != kind:
        known = ", ".join(name for name, each in registry().items() if each.kind == kind) or "none"
        raise ContractError(f'no {kind} is named "{header.get("task")}"; known are {known}')
    return task


def _set_up_streams() -> None:
    """A line is a line of the log, at once; text that cannot be written must not fail a batch."""
    for stream in (sys.stdout, sys.stderr):
        reconfigure = getattr(stream, "reconfigure", None)
        if reconfigure is not None:
            reconfigure(encoding="utf-8", errors="backslashreplace", line_buffering=True)


def _flush() -> None:
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except Exception:
            pass  # replaced or closed by a function, or the runner no longer reads it


def _leave(code: int) -> NoReturn:
    """Runs what was registered for the exit, but waits for no thread: a worker whose runner is gone
    would stay forever."""
    try:
        atexit._run_exitfuncs()
    except BaseException as error:
        print(f"at exit: {type(error).__name__}: {failure.message_of(error)}", file=sys.stderr)
    _flush()
    os._exit(code)


if __name__ == "__main__":
    main()
