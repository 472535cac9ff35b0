"""What a fuzzer cannot know: the names of things that are there, and which of them have to stay."""

import ast
import atexit
import collections
import json
import os
import random
import threading
import urllib.parse

import schemathesis
from schemathesis.specs.openapi import checks

# An address that has shown too many wrong tokens is refused by 429, and so is the fuzzer's.
checks.AUTH_REJECTION_STATUSES = frozenset({*checks.AUTH_REJECTION_STATUSES, 429})

# Names and ids by path parameter, or by operation and path parameter.
KNOWN = json.loads(os.environ["FUZZ_KNOWN"])
# What has to stay, by operation: a fuzzer hears of names in answers, and uses them.
SPARED = json.loads(os.environ["FUZZ_SPARED"])
LONGEST_WAIT = 1

# Python 3.11 counts the depth of all trees that it builds together, and ends a thread that builds one beside another with a
# SystemError (python/cpython, issue 106905): threads of the fuzzer build theirs one after the other.
parse, parsing = ast.parse, threading.Lock()


def parse_alone(*arguments, **options):
    with parsing:
        return parse(*arguments, **options)


ast.parse = parse_alone

# How often each operation was answered with which status: told at the end, so that a run that reaches nothing shows.
answers = collections.defaultdict(collections.Counter)
atexit.register(lambda: print("answers:", json.dumps(answers)))


@schemathesis.hook
def before_call(context, case, kwargs):
    stay_on_this_machine(case)
    operation = case.operation.definition.raw["operationId"]
    for name, value in (case.path_parameters or {}).items():
        case.path_parameters[name] = something_known(operation, name, value)
    shorten_wait(case)


def stay_on_this_machine(case):
    url = urllib.parse.urlsplit(case.operation.base_url or "")
    assert url.hostname == "127.0.0.1", f"{case.operation.base_url} is not this machine"


def something_known(operation, name, value):
    """Four calls of five are about something that is there; the same value leads to the same."""
    if value in SPARED.get(operation, []):
        return f"not-{value}"
    known = KNOWN.get(f"{operation}.{name}", KNOWN.get(name, []))
    chance = random.Random(repr(value))
    return chance.choice(known) if known and chance.random() < 0.8 else value


def shorten_wait(case):
    """A long poll is long by design. Which values are refused is tried all the same."""
    wait = str((case.query or {}).get("wait", ""))
    if wait.isdigit() and LONGEST_WAIT < int(wait) <= 60:
        case.query["wait"] = LONGEST_WAIT


@schemathesis.hook
def after_call(context, case, response):
    answers[case.operation.definition.raw["operationId"]][response.status_code] += 1
