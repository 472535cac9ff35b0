"""Runs Vitrina's pipelines for an orchestrator, by REST calls and Python's standard library alone.

It knows nothing of Airflow: `vitrina_marts.py` beside it does. Asking again with the same key is always safe, and
so is asking again for a run: whatever breaks on the way is asked once more until `patience` seconds have passed.
"""

from __future__ import annotations

import hashlib
import http.client
import json
import logging
import os
import time
import urllib.error
import urllib.parse
import urllib.request
from dataclasses import dataclass
from typing import Any, Dict, Mapping, Optional

log = logging.getLogger("vitrina")

OPEN = ("REQUESTED", "RUNNING")
LONGEST_WAIT = 60
"""How many seconds one call may wait for the end of a run."""

# The API or a proxy before it is starting, stopping, busy, or asks for a slower caller.
PASSING = (429, 502, 503, 504)


class VitrinaError(Exception):
    """The run did not succeed, or nobody knows."""


class Refused(VitrinaError):
    """The API does not do what it was asked for; `code` is stable, for programs."""

    def __init__(self, status: int, problem: Mapping[str, Any]) -> None:
        self.status = status
        self.code = str(problem.get("code", f"http.{status}"))
        hint = problem.get("hint")
        super().__init__(f"{self.code}: {problem.get('detail', 'no reason given')}" + (f" ({hint})" if hint else ""))


class Unreachable(VitrinaError):
    """The API did not answer for longer than `patience`. The run, if there is one, goes on."""


class TimedOut(VitrinaError):
    """The run takes longer than its caller has time for. It goes on."""


class RunEnded(VitrinaError):
    """The run has ended, and not with SUCCESS."""

    def __init__(self, run: Mapping[str, Any]) -> None:
        self.run = run
        reason = f": {run['error_code']}: {run['error']}" if run.get("error") else ""
        super().__init__(f"run {run['id']} of {run['pipeline']} is {run['status']}{reason}")


class RunFailed(RunEnded):
    pass


class RunPaused(RunEnded):
    pass


class RunCancelled(RunEnded):
    pass


ENDS = {"FAILED": RunFailed, "PAUSED": RunPaused, "CANCELLED": RunCancelled}


def idempotency_key(*parts: object) -> str:
    """One key for one piece of work, whatever characters its names are made of."""
    text = json.dumps([str(part) for part in parts], ensure_ascii=False)
    return "orchestrator-" + hashlib.sha256(text.encode()).hexdigest()


@dataclass(frozen=True)
class Vitrina:
    url: str
    """Such as https://vitrina.internal; the versioned path is added here."""
    token: str
    """Of the role operator."""
    patience: float = 300
    """For how many seconds in a row the API may be away: a restart, an update, a failover of its database."""

    def run_to_end(
        self,
        pipeline: str,
        key: str,
        order: Optional[Mapping[str, Any]] = None,
        on_paused: str = "fail",
        again: bool = False,
        timeout: Optional[float] = None,
    ) -> Dict[str, Any]:
        """Asks for a run and follows it to SUCCESS; every other end is an exception.

        on_paused: "fail", or "wait" for the run that goes on from the pause.
        again: where the run of this key had already FAILED or was CANCELLED, ask for a new one. Its key is made of
        the one that ended, so that two callers cannot get two.
        """
        if on_paused not in ("fail", "wait"):
            raise ValueError(f"on_paused is {on_paused!r}: fail or wait")
        deadline = None if timeout is None else time.monotonic() + timeout
        run_id = self._start(pipeline, key, order or {}, on_paused, again, deadline)
        run = self._follow(pipeline, run_id, on_paused, deadline)
        if run["status"] != "SUCCESS":
            raise ENDS.get(run["status"], RunEnded)(run)
        return run

    def _start(
        self,
        pipeline: str,
        key: str,
        order: Mapping[str, Any],
        on_paused: str,
        again: bool,
        deadline: Optional[float],
    ) -> str:
        """The id of the run that this key stands for; it exists from here on."""
        while True:
            accepted = self.request_run(pipeline, key, order)
            run_id = str(accepted["run_id"])
            if accepted["pending"]:
                log.info("waiting for run %s, which goes before", run_id)
                before = self._follow(pipeline, run_id, on_paused, deadline)
                if before["status"] == "PAUSED":
                    # Asking now would resume what somebody has paused.
                    raise RunPaused(before)
            elif again and accepted["status"] in ("FAILED", "CANCELLED"):
                log.info("run %s of an earlier try is %s", run_id, accepted["status"])
                key = idempotency_key(key, run_id)
            else:
                log.info("run %s is %s", run_id, accepted["status"])
                return run_id

    def _follow(self, pipeline: str, run_id: str, on_paused: str, deadline: Optional[float]) -> Dict[str, Any]:
        """The run as it ended; with "wait", the last of those that went on from a pause."""
        while True:
            run = self.wait_for_run(run_id, deadline)
            if run["status"] != "PAUSED" or on_paused == "fail":
                return run
            log.info("run %s is PAUSED, waiting for the one that goes on from there", run_id)
            successor = self._wait_for_resume(pipeline, run_id, deadline)
            if successor is None:
                # Set back to IDLE by a cancel: nothing will go on from this pause.
                return {**run, "status": "CANCELLED"}
            log.info("run %s goes on from the pause", successor)
            run_id = successor

    def _wait_for_resume(self, pipeline: str, run_id: str, deadline: Optional[float]) -> Optional[str]:
        """The run that came after this one, or None where the pause was given up."""
        etag = None
        while True:
            status, etag = self.status(pipeline, wait=_seconds_left(deadline), known=etag)
            last = status["last_run"]
            if last is not None and last["id"] != run_id:
                return str(last["id"])
            if status["status"] not in ("PAUSED", "PAUSE_REQUESTED"):
                return None

    def wait_for_run(self, run_id: str, deadline: Optional[float] = None) -> Dict[str, Any]:
        """The run as soon as it has ended; runners and the API may come and go meanwhile."""
        while True:
            run = self.run(run_id, wait=_seconds_left(deadline))
            if run["status"] not in OPEN:
                return run

    def request_run(self, pipeline: str, key: str, order: Mapping[str, Any]) -> Dict[str, Any]:
        """POST …/run. Not content with a run that began before this request, unless `order` says so."""
        headers = {"idempotency-key": key}
        traceparent = os.environ.get("TRACEPARENT") or os.environ.get("traceparent")
        if traceparent:
            headers["traceparent"] = traceparent
        path = f"/pipelines/{urllib.parse.quote(pipeline, safe='')}/run"
        return self._call("POST", path, headers, {"on_active": "after", **order})[0]

    def run(self, run_id: str, wait: int = 0) -> Dict[str, Any]:
        return self._call("GET", f"/runs/{urllib.parse.quote(run_id, safe='')}?wait={wait}", {})[0]

    def status(self, pipeline: str, wait: int = 0, known: Optional[str] = None) -> Any:
        """The status and its etag: at once, or as soon as it differs from the one that is known."""
        path = f"/pipelines/{urllib.parse.quote(pipeline, safe='')}/status"
        if known is None:
            return self._call("GET", path, {})
        return self._call("GET", f"{path}?wait={wait}", {"if-none-match": known})

    def _call(self, method: str, path: str, headers: Mapping[str, str], body: Any = None) -> Any:
        """The answer and its etag. What is only passing is asked again."""
        away_since, tries = None, 0
        while True:
            try:
                return self._call_once(method, path, headers, body)
            except _Passing as passing:
                now = time.monotonic()
                away_since = now if away_since is None else away_since
                pause = passing.retry_after if passing.retry_after is not None else min(0.25 * 2**tries, 10.0)
                if now + pause > away_since + self.patience:
                    raise Unreachable(f"{method} {self.url}: {passing} for {now - away_since:.0f} s") from passing
                log.warning("the API is away (%s), asking again in %.2g s", passing, pause)
                time.sleep(pause)
                tries += 1

    def _call_once(self, method: str, path: str, headers: Mapping[str, str], body: Any) -> Any:
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(f"{self.url.rstrip('/')}/api/v1{path}", data=data, method=method)
        request.add_header("authorization", f"Bearer {self.token}")
        if data is not None:
            request.add_header("content-type", "application/json")
        for name, value in headers.items():
            request.add_header(name, value)
        try:
            with _opener.open(request, timeout=LONGEST_WAIT + 30) as answer:
                return json.load(answer), answer.headers.get("etag")
        except urllib.error.HTTPError as error:
            raise _problem(error) from None
        except (OSError, http.client.HTTPException, json.JSONDecodeError) as error:
            # An address that does not answer, and an answer that breaks off.
            raise _Passing(str(error) or type(error).__name__) from error


class _Passing(Exception):
    def __init__(self, reason: str, retry_after: Optional[float] = None) -> None:
        super().__init__(reason)
        self.retry_after = retry_after


class _NoRedirects(urllib.request.HTTPRedirectHandler):
    """The API never redirects, and a token goes nowhere else."""

    def redirect_request(self, *_: Any) -> None:
        return None


_opener = urllib.request.build_opener(_NoRedirects)


def _problem(error: urllib.error.HTTPError) -> Exception:
    with error:
        if error.code in PASSING:
            return _Passing(f"HTTP {error.code}", _retry_after(error.headers.get("retry-after")))
        try:
            problem = json.load(error)
        except (OSError, ValueError, http.client.HTTPException):
            problem = {}
    return Refused(error.code, problem if isinstance(problem, dict) else {})


def _retry_after(value: Optional[str]) -> Optional[float]:
    """In seconds; the other form, a date, is left to our own pauses."""
    return min(float(value), 60.0) if value is not None and value.isdigit() else None


def _seconds_left(deadline: Optional[float]) -> int:
    if deadline is None:
        return LONGEST_WAIT
    left = deadline - time.monotonic()
    if left <= 0:
        raise TimedOut("the run goes on, and its caller has no more time")
    return max(1, min(LONGEST_WAIT, int(left)))
