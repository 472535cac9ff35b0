"""Rows per second through a real worker, for each batch type: ten columns, 100,000 rows.

    python bench.py [rows]

Counts the whole way of a batch: written into the pipe, decoded, handed to a function that adds one
column, encoded, read back. The best of three, after one call to warm up.
"""

from __future__ import annotations

import json
import os
import struct
import subprocess
import sys
import tempfile
import time
import uuid
from pathlib import Path
from typing import Any

from vitrina import arrow, rows, samples

MODULE = '''
import pandas, polars, pyarrow, pyarrow.compute
from vitrina import transform

@transform
def record_batch(batch: pyarrow.RecordBatch):
    return batch.append_column("slug", pyarrow.compute.utf8_lower(batch["title"]))

@transform(name="polars")
def frame(batch: polars.DataFrame):
    return batch.with_columns(slug=polars.col("title").str.to_lowercase())

@transform(name="pandas")
def other_frame(batch: pandas.DataFrame):
    batch["slug"] = batch["title"].str.lower()
    return batch

@transform(name="list")
def many(rows: list[dict]):
    for row in rows:
        row["slug"] = row["title"].lower()
    return rows

@transform(name="dict")
def one(row: dict):
    row["slug"] = row["title"].lower()
    return row
'''
COLUMNS = {
    "id": "uuid", "title": "text", "plot": "text", "year": "integer", "votes": "bigint", "rating": "double precision",
    "price": "numeric", "released": "date", "updated": "timestamptz", "shown": "boolean",
}
LENGTHS = struct.Struct("<IQ")


def sample(count: int) -> bytes:
    lines = (
        {
            "id": str(uuid.UUID(int=n)), "title": f"Film {n}", "plot": "A boat, and the sea around it. " * 2,
            "year": 1900 + n % 120, "votes": n, "rating": n / 7, "price": f"{n % 100}.90", "released": "2024-05-01",
            "updated": "2024-05-01T12:00:00.123456Z", "shown": n % 2 == 0,
        }
        for n in range(count)
    )
    return "\n".join(map(json.dumps, lines)).encode()


class Worker:
    def __init__(self, folder: str) -> None:
        theirs, self.to = os.pipe()
        self.back, out = os.pipe()
        command = [sys.executable, "-m", "vitrina.worker", "--in", str(theirs), "--out", str(out), "--module", "benched"]
        path = os.pathsep.join([folder, *filter(None, sys.path)])
        self.process = subprocess.Popen(command, pass_fds=(theirs, out), env={**os.environ, "PYTHONPATH": path})
        os.close(theirs)
        os.close(out)
        self.receive()

    def ask(self, task: str, body: bytes) -> None:
        columns = [{"name": name, "type": kind} for name, kind in COLUMNS.items()]
        header = json.dumps({"call": "transform", "task": task, "columns": columns, "context": {}}).encode()
        view = memoryview(LENGTHS.pack(len(header), len(body)) + header + body)
        while view:
            view = view[os.write(self.to, view) :]
        answer = self.receive()
        assert "done" in answer, answer

    def receive(self) -> Any:
        header, body = LENGTHS.unpack(self.exactly(LENGTHS.size))
        answer = json.loads(self.exactly(header))
        self.exactly(body)
        return answer

    def exactly(self, count: int) -> bytearray:
        data, filled = bytearray(count), 0
        while filled < count:
            filled += os.readv(self.back, [memoryview(data)[filled:]])
        return data


def main() -> None:
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 100_000
    lines = sample(count)
    batch = bytes(arrow.write(samples.to_batch(rows.decode(lines, COLUMNS), COLUMNS)))
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "benched.py").write_text(MODULE)
        worker = Worker(folder)
        for task, body in [("record_batch", batch), ("polars", batch), ("pandas", batch), ("list", lines), ("dict", lines)]:
            worker.ask(task, body)
            seconds = []
            for _ in range(3):
                began = time.perf_counter()
                worker.ask(task, body)
                seconds.append(time.perf_counter() - began)
            print(f"{task:14} {count / min(seconds):12,.0f} rows/s   {min(seconds) * 1000:8.1f} ms", flush=True)
        os.close(worker.to)
        worker.process.wait()


if __name__ == "__main__":
    main()
