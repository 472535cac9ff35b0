"""A worker outlives what functions do to it, and nothing but the worker speaks on its pipe."""

import os
import signal

import pytest


def _one(workshop, body, extra=""):
    lines = "\n".join("    " + line for line in body.splitlines())
    return workshop.ready(f"""
import os, subprocess, sys
from vitrina import transform, Retry
{extra}
@transform
def good(row: dict): return row

@transform
def change(row: dict, context):
{lines}
""".strip() + "\n")


def _error(runner, rows=({"a": 1},)):
    return runner.rows("change", {"a": "bigint"}, list(rows))[0]["error"]


def _still_works(runner):
    return runner.rows("good", {"a": "bigint"}, [{"a": 5}])[1] == [{"a": 5}]


def what_a_function_prints_goes_to_the_log_before_the_answer(workshop):
    runner = _one(workshop, "print('half', end='')\nprint('warned', file=sys.stderr)\nreturn row")
    runner.rows("change", {"a": "bigint"}, [{"a": 1}])
    assert runner.printed() == "half"
    assert runner.printed("stderr") == "warned\n"


@pytest.mark.parametrize("body", [
    "os.write(1, b'noise\\n'); sys.stdout.buffer.write(b'noise\\n')",
    "subprocess.run([sys.executable, '-c', 'print(1)'])",
    "subprocess.run('ls -l /proc/self/fd', shell=True, close_fds=False)",
    "import multiprocessing; p = multiprocessing.get_context('fork').Process(target=print, args=('x',)); p.start(); p.join()",
])
def what_a_function_writes_cannot_reach_the_pipe(workshop, body):
    runner = _one(workshop, body + "\nreturn row")
    assert runner.rows("change", {"a": "bigint"}, [{"a": 1}])[1] == [{"a": 1}]
    assert _still_works(runner)


def a_started_program_inherits_no_descriptor_of_the_worker(workshop):
    body = "out = subprocess.run(['ls', '/proc/self/fd'], close_fds=False, capture_output=True, text=True)\nreturn {'a': out.stdout}"
    runner = _one(workshop, body)
    numbers = runner.rows("change", {"a": "bigint"}, [{"a": 1}])[1][0]["a"].split()
    assert set(numbers) <= {"0", "1", "2", "3"}


def a_forked_child_has_the_pipe_closed(workshop):
    body = '''before = [n for n in map(int, os.listdir("/proc/self/fd")) if n >= 10]
child = os.fork()
if child == 0:
    left = 0
    for n in before:
        try:
            os.fstat(n)
            left += 1
        except OSError:
            pass
    os._exit(left)
return {"before": len(before), "left": os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])}'''
    row = _one(workshop, body).rows("change", {"a": "bigint"}, [{"a": 1}])[1][0]
    assert row["before"] >= 2 and row["left"] == row["before"] - 2


@pytest.mark.parametrize(("ending", "code"), [("return row", 0), ("sys.exit(7)", 7), ("raise ValueError", 1)])
def a_forked_child_that_comes_back_does_not_answer(workshop, ending, code):
    body = f'''child = os.fork()
if child == 0:
    {ending}
return {{"code": os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])}}'''
    runner = _one(workshop, body)
    assert runner.rows("change", {"a": "bigint"}, [{"a": 1}])[1] == [{"code": code}]
    assert _still_works(runner)


@pytest.mark.parametrize(("body", "kind"), [
    ("sys.exit()", "SystemExit"),
    ("raise SystemExit(3)", "SystemExit"),
    ("raise KeyboardInterrupt", "KeyboardInterrupt"),
    ("raise GeneratorExit", "GeneratorExit"),
    ("raise StopIteration", "StopIteration"),
    ("raise MemoryError", "MemoryError"),
    ("return [b'x' * (1 << 62)]", "MemoryError"),
    ("def deep(): deep()\ndeep()", "RecursionError"),
    ("raise ValueError('bad')", "ValueError"),
    ("class Odd(Exception):\n    def __str__(self): raise KeyError\nraise Odd", "Odd"),
])
def whatever_a_function_raises_is_an_error_of_that_batch_alone(workshop, body, kind):
    runner = _one(workshop, body)
    error = _error(runner)
    assert (error["kind"], error["type"]) == ("exception", kind)
    assert error["line"].startswith("films.py:")
    assert _still_works(runner)


def a_function_may_close_or_replace_the_standard_streams(workshop):
    runner = _one(workshop, "sys.stdout.close()\nsys.stderr = None\nreturn row")
    assert runner.rows("change", {"a": "bigint"}, [{"a": 1}])[1] == [{"a": 1}]
    assert _still_works(runner)


def text_that_cannot_be_written_does_not_fail_a_batch(workshop):
    runner = _one(workshop, "print('\\ud800')\nreturn row")
    assert runner.rows("change", {"a": "bigint"}, [{"a": 1}])[1] == [{"a": 1}]


def an_error_tells_the_users_own_line_first(workshop):
    extra = '''
import json
def helper(text):
    return json.loads(text)
'''
    runner = _one(workshop, "return helper('{')", extra)
    error = _error(runner, [{"a": 1}])
    assert error["line"] == "films.py:6 in helper"
    lines = error["traceback"].splitlines()
    assert lines[0] == "films.py:6, in helper: return json.loads(text)"
    assert lines[1].endswith("in change: return helper('{')")
    assert "in raw_decode" in lines[2]
    assert lines[-1] == "in row 0 of this batch"
    assert "calls.py" not in error["traceback"] and "worker.py" not in error["traceback"]


def an_error_tells_its_cause(workshop):
    body = "try:\n    row['b']\nexcept KeyError as error:\n    raise ValueError('no b') from error"
    error = _error(_one(workshop, body))
    assert error["message"] == "no b"
    assert "caused by KeyError: 'b'" in error["traceback"]


def the_row_at_which_a_dict_function_failed_is_told(workshop):
    error = _error(_one(workshop, "return {'b': 1 / row['a']}"), [{"a": 1}, {"a": 0}])
    assert error["traceback"].endswith("in row 1 of this batch")


def a_deep_or_huge_traceback_is_cut(workshop):
    error = _error(_one(workshop, "def deep(n):\n    return deep(n + 1)  # " + "x" * 500 + "\ndeep(0)"))
    assert len(error["traceback"].encode()) <= 8192
    error = _error(_one(workshop, "raise ValueError('é' * 10_000_000)"))
    assert len(error["message"].encode()) <= 2048 and error["message"].endswith("…")


def a_message_with_half_a_character_is_still_a_valid_frame(workshop):
    assert _error(_one(workshop, "raise ValueError('a\\ud800')"))["message"] == "a?"


def a_huge_reason_of_a_refusal_is_cut(workshop):
    runner = _one(workshop, "context.reject(row, 'é' * 1_000_000 + '\\ud800')\nreturn row")
    header, rows = runner.rows("change", {"a": "bigint"}, [{"a": 1}])
    assert rows == [] and len(header["done"]["rejects"][0]["message"].encode()) <= 2048


def a_retry_is_told_apart(workshop):
    error = _error(_one(workshop, "raise Retry('the service is busy')"))
    assert (error["kind"], error["message"]) == ("retry", "the service is busy")


@pytest.mark.parametrize(("call", "words"), [
    ({"call": "transform", "task": "nobody", "columns": []}, 'no transform is named "nobody"; known are good, change'),
    ({"call": "dance"}, 'unknown call "dance"; known are transform, source, next, close'),
    ({"call": "next"}, "no source is open"),
])
def an_unknown_call_is_an_error_that_lists_the_known_ones(workshop, call, words):
    runner = _one(workshop, "return row")
    error = runner.ask(call)[0]["error"]
    assert error["kind"] == "contract" and words in error["message"]
    assert _still_works(runner)


def the_end_of_the_pipe_ends_the_worker_with_zero(workshop):
    runner = _one(workshop, "return row", "import atexit; atexit.register(print, 'bye')")
    assert runner.hang_up() == 0
    assert runner.printed() == "bye\n"


def a_thread_that_never_ends_does_not_keep_the_worker(workshop):
    runner = _one(workshop, "return row", "import threading; threading.Thread(target=threading.Event().wait).start()")
    assert runner.hang_up() == 0


def a_frame_that_breaks_off_ends_the_worker_with_one(workshop):
    runner = _one(workshop, "return row")
    os.write(runner._to, b"\x05\x00\x00\x00")
    assert runner.hang_up() == 1


def signals_are_left_as_they_were(workshop):
    body = "import signal\nreturn {'a': [signal.getsignal(n) == signal.SIG_DFL for n in (signal.SIGTERM, signal.SIGALRM)]}"
    runner = _one(workshop, body)
    assert runner.rows("change", {"a": "bigint"}, [{"a": 1}])[1] == [{"a": [True, True]}]
    runner.process.send_signal(signal.SIGTERM)
    assert runner.process.wait(20) == -signal.SIGTERM


def a_large_batch_passes_whole(workshop):
    runner = _one(workshop, "return row")
    rows = [{"a": number, "b": "x" * 1000} for number in range(5000)]
    assert runner.rows("good", {"a": "bigint", "b": "text"}, rows)[1] == rows


def a_worker_serves_many_calls_and_keeps_no_descriptors(workshop):
    runner = _one(workshop, "return {'a': len(os.listdir('/proc/self/fd'))}")
    counts = {runner.rows("change", {"a": "bigint"}, [{"a": 1}])[1][0]["a"] for _ in range(50)}
    assert len(counts) == 1
