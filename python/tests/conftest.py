"""A real worker behind real pipes, as a runner starts it."""

from __future__ import annotations

import json
import os
import struct
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

import pyarrow
import pytest

SOURCES = Path(__file__).resolve().parents[1] / "src"
LENGTHS = struct.Struct("<IQ")


class Runner:
    """The runner's side of the protocol, written from its page and not from the SDK's code."""

    def __init__(self, folder: Path, modules: list[str], options: list[str], environment: dict[str, str]) -> None:
        self.folder = folder
        their_in, self._to = os.pipe()
        self._from, their_out = os.pipe()
        command = [sys.executable, *options, "-m", "vitrina.worker", "--in", str(their_in), "--out", str(their_out)]
        for module in modules:
            command += ["--module", module]
        path = os.pathsep.join([str(folder), str(SOURCES)])
        with open(folder / "stdout", "wb") as out, open(folder / "stderr", "wb") as err:
            self.process = subprocess.Popen(
                command,
                pass_fds=(their_in, their_out),
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=err,
                cwd=folder,
                env={**os.environ, "PYTHONPATH": path, "PYTHONDONTWRITEBYTECODE": "1", **environment},
            )
        os.close(their_in)
        os.close(their_out)

    def send(self, header: dict[str, Any], body: bytes = b"") -> None:
        text = json.dumps(header).encode()
        data = LENGTHS.pack(len(text), len(body)) + text + body
        while data:
            data = data[os.write(self._to, data) :]

    def receive(self) -> tuple[dict[str, Any], bytes]:
        header_length, body_length = LENGTHS.unpack(self._exactly(LENGTHS.size))
        return json.loads(self._exactly(header_length)), self._exactly(body_length)

    def ask(self, header: dict[str, Any], body: bytes = b"") -> tuple[dict[str, Any], bytes]:
        self.send(header, body)
        return self.receive()

    def rows(self, task: str, columns: dict[str, str], rows: list[Any]) -> tuple[dict[str, Any], list[Any]]:
        body = "".join(json.dumps(row) + "\n" for row in rows).encode()
        header, answer = self.ask(self.call(task, columns), body)
        return header, [json.loads(line) for line in answer.splitlines()]

    def arrow(self, task: str, batch: Any) -> tuple[dict[str, Any], Any]:
        columns = {name: "text" for name in batch.schema.names}
        header, answer = self.ask(self.call(task, columns), ipc(batch))
        return header, pyarrow.ipc.open_stream(answer).read_all().to_batches() if answer else None

    def call(self, task: str, columns: dict[str, str]) -> dict[str, Any]:
        listed = [{"name": name, "type": kind} for name, kind in columns.items()]
        context = {"pipeline": "films", "run_id": "r1", "batch": 3, "mode": "full"}
        return {"call": "transform", "task": task, "columns": listed, "context": context}

    def hang_up(self) -> int:
        if self._to >= 0:
            os.close(self._to)
            self._to = -1
        return self.process.wait(20)

    def close(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()
        for descriptor in (self._to, self._from):
            if descriptor >= 0:
                os.close(descriptor)

    def printed(self, stream: str = "stdout") -> str:
        return (self.folder / stream).read_text()

    def _exactly(self, count: int) -> bytes:
        data = b""
        while len(data) < count:
            more = os.read(self._from, count - len(data))
            if not more:
                raise EOFError("the worker closed the pipe; it printed: " + self.printed("stderr"))
            data += more
        return data


def ipc(batch: Any) -> bytes:
    sink = pyarrow.BufferOutputStream()
    with pyarrow.ipc.new_stream(sink, batch.schema) as stream:
        stream.write_batch(batch)
    return sink.getvalue().to_pybytes()


class Workshop:
    """Writes modules and starts workers over them."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._runners: list[Runner] = []

    def write(self, text: str, module: str = "films") -> Path:
        path = self.folder / f"{module}.py"
        path.write_text(textwrap.dedent(text))
        return path

    def start(
        self,
        text: str | None = None,
        modules: tuple[str, ...] = ("films",),
        options: tuple[str, ...] = (),
        environment: dict[str, str] | None = None,
    ) -> Runner:
        if text is not None:
            self.write(text)
        runner = Runner(self.folder, list(modules), list(options), environment or {})
        self._runners.append(runner)
        return runner

    def ready(self, text: str, **how: Any) -> Runner:
        runner = self.start(text, **how)
        header, _ = runner.receive()
        assert "ready" in header, header
        return runner

    def refused(self, text: str, **how: Any) -> dict[str, Any]:
        """The error of a worker that cannot start. It must have ended by itself."""
        runner = self.start(text, **how)
        header, _ = runner.receive()
        assert runner.process.wait(20) == 1
        return header["error"]

    def close(self) -> None:
        for runner in self._runners:
            runner.close()


@pytest.fixture
def workshop(tmp_path: Path) -> Any:
    shop = Workshop(tmp_path)
    yield shop
    shop.close()
