"""How values of each Postgres type travel in JSON, and what a function sees of them.

Decoding never fails for what Postgres can hold: a date or time that Python has no form for (infinity,
BC, the year 10000, 24:00:00) is seen as the text it travels as, and goes back as that text.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable
from datetime import date, datetime, time, timezone
from decimal import Decimal
from typing import Any, NamedTuple
from uuid import UUID

from . import postgres


class Misfit(Exception):
    """A value is not of the type asked for. Says so without quoting the value."""


class Form(NamedTuple):
    decode: Callable[[Any], Any] | None
    """From JSON to what the function sees. None: it is the same."""
    encode: Callable[[Any], Any]
    """To JSON, or Misfit."""
    plain: frozenset[type]
    """Exact types that need no encoding; None's is always among them."""


def form(pg_type: str) -> Form:
    """Of a type in the protocol. What it does not name travels as text."""
    scalar = _FORMS.get(postgres.element(pg_type), _FORMS["text"])
    return _array(scalar) if postgres.is_array(pg_type) else scalar


def encode_all(values: list[Any], form: Form) -> list[Any]:
    if form.plain.issuperset(map(type, values)):
        return values
    encode = form.encode
    return [None if value is None else encode(value) for value in values]


def _array(scalar: Form) -> Form:
    def decode(items: list[Any]) -> list[Any]:
        if scalar.decode is None:
            return items
        return [None if item is None else scalar.decode(item) for item in items]

    def encode(items: Any) -> list[Any]:
        if not isinstance(items, (list, tuple)):
            raise Misfit(_named(items))
        return encode_all(list(items), scalar)

    return Form(decode, encode, _plain())


def _plain(*types: type) -> frozenset[type]:
    return frozenset({type(None), *types})


def _named(value: Any) -> str:
    return type(value).__name__


def _instance(kind: type | tuple[type, ...]) -> Callable[[Any], Any]:
    def encode(value: Any) -> Any:
        if not isinstance(value, kind):
            raise Misfit(_named(value))
        return value

    return encode


def _integer(bits: int) -> Callable[[Any], Any]:
    lowest, highest = -(1 << (bits - 1)), (1 << (bits - 1)) - 1

    def encode(value: Any) -> int:
        if not isinstance(value, int) or isinstance(value, bool):
            raise Misfit(_named(value))
        if not lowest <= value <= highest:
            raise Misfit(f"int beyond {bits} bits")
        return value

    return encode


_GREATEST_REAL = 3.4028234663852886e38
_NOT_FINITE = {math.inf: "Infinity", -math.inf: "-Infinity"}


def _float(greatest: float) -> Callable[[Any], Any]:
    def encode(value: Any) -> Any:
        if isinstance(value, bool) or not isinstance(value, (float, int)):
            raise Misfit(_named(value))
        if -greatest <= value <= greatest:
            return value
        if isinstance(value, float) and not math.isfinite(value):
            return _NOT_FINITE.get(value, "NaN")
        raise Misfit(f"{_named(value)} too great")

    return encode


def _numeric(value: Any) -> str:
    if isinstance(value, bool) or not isinstance(value, (Decimal, int)):
        raise Misfit(_named(value))
    if isinstance(value, Decimal) and value.is_nan():
        return "NaN"
    return format(value, "f") if isinstance(value, Decimal) else str(value)


def _bytea(value: Any) -> str:
    if not isinstance(value, (bytes, bytearray, memoryview)):
        raise Misfit(_named(value))
    return value.hex()


def _date(value: Any) -> str:
    if isinstance(value, str):
        return _beyond(value, _DATE)
    if not isinstance(value, date) or isinstance(value, datetime):
        raise Misfit(_named(value))
    return value.isoformat()


def _time(value: Any) -> str:
    if isinstance(value, str):
        return _beyond(value, _TIME)
    if not isinstance(value, time):
        raise Misfit(_named(value))
    if value.tzinfo is not None:
        raise Misfit("time with a time zone")
    return value.isoformat("microseconds")


def _timestamp(value: Any) -> str:
    if isinstance(value, str):
        return _beyond(value, _TIMESTAMP)
    if not isinstance(value, datetime):
        raise Misfit(_named(value))
    if value.utcoffset() is not None:
        raise Misfit("datetime with a time zone")
    return value.isoformat("T", "microseconds")


def _timestamptz(value: Any) -> str:
    if isinstance(value, str):
        return _beyond(value, _TIMESTAMPTZ)
    if not isinstance(value, datetime):
        raise Misfit(_named(value))
    if value.utcoffset() is None:
        raise Misfit("datetime without a time zone")
    if value.tzinfo is not timezone.utc:
        value = value.astimezone(timezone.utc)
    text: str = value.isoformat("T", "microseconds")
    return text[: -len("+00:00")] + "Z"


def _beyond(value: str, read: Callable[[str], Any]) -> str:
    """Text in place of a date or time is taken only where Python has no form for it."""
    if _FAR.fullmatch(value) and isinstance(read(value), str):
        return value
    raise Misfit("str")


_FAR = re.compile(r"-?infinity|[+-]?\d{4,}-\d\d-\d\d.*|24:00:00(\.0+)?", re.IGNORECASE)
_FRACTION = re.compile(r"\.(\d{1,6})\d*")


def _six_digits(text: str) -> str:
    """Python 3.10 reads three or six digits of a second, and nothing else."""
    return _FRACTION.sub(lambda found: "." + found[1].ljust(6, "0"), text)


def _read(parse: Callable[[str], Any]) -> Callable[[str], Any]:
    def decode(text: str) -> Any:
        try:
            return parse(text)
        except ValueError:
            pass
        try:
            return parse(_six_digits(text))
        except ValueError:
            return text

    return decode


def _parse_timestamptz(text: str) -> datetime:
    moment = datetime.fromisoformat(text[:-1] + "+00:00" if text.endswith("Z") else text)
    if moment.tzinfo is timezone.utc:
        return moment
    return moment.astimezone(timezone.utc)


def _parse_timestamp(text: str) -> datetime:
    moment = datetime.fromisoformat(text)
    return moment.replace(tzinfo=None)


_DATE = _read(date.fromisoformat)
_TIME = _read(time.fromisoformat)
_TIMESTAMP = _read(_parse_timestamp)
_TIMESTAMPTZ = _read(_parse_timestamptz)

# One encoder for all: `json.dumps` would build one for every value.
_JSON = json.JSONEncoder(ensure_ascii=False, allow_nan=False, separators=(",", ":"))


_SHORT = 16


def _fraction(text: str) -> float | Decimal:
    """A float, unless it has more digits than one holds."""
    if len(text) <= _SHORT and "e" not in text and "E" not in text:
        return float(text)
    near, exact = float(text), Decimal(text)
    return near if math.isfinite(near) and Decimal(repr(near)) == exact else exact


# One decoder for all, as above.
_parse_json = json.JSONDecoder(parse_float=_fraction).decode


def _with_decimals(value: Any) -> str:
    """What the encoder of Python has no word for: numbers with many digits, somewhere inside."""
    if isinstance(value, Decimal) and value.is_finite():
        return str(value)
    if isinstance(value, dict):
        pairs = (_JSON.encode({key: None})[1:-5] + _with_decimals(each) for key, each in value.items())
        return "{" + ",".join(pairs) + "}"
    if isinstance(value, (list, tuple)):
        return "[" + ",".join(map(_with_decimals, value)) + "]"
    return _JSON.encode(value)


def _json(value: Any) -> str:
    try:
        try:
            return _JSON.encode(value)
        except TypeError:
            return _with_decimals(value)
    except (TypeError, ValueError) as error:
        raise Misfit(f"{_named(value)} that is not JSON ({error})") from None


def _uuid(value: Any) -> str:
    return str(_instance(UUID)(value))


_TEXT = Form(None, _instance(str), _plain(str))
_FORMS = {
    "boolean": Form(None, _instance(bool), _plain(bool)),
    "smallint": Form(None, _integer(16), _plain()),
    "integer": Form(None, _integer(32), _plain()),
    "bigint": Form(None, _integer(64), _plain()),
    "real": Form(float, _float(_GREATEST_REAL), _plain()),
    "double precision": Form(float, _float(1.7976931348623157e308), _plain()),
    "numeric": Form(Decimal, _numeric, _plain()),
    "text": _TEXT,
    "varchar": _TEXT,
    "bpchar": _TEXT,
    "name": _TEXT,
    "interval": _TEXT,
    "bytea": Form(bytes.fromhex, _bytea, _plain()),
    "date": Form(_DATE, _date, _plain()),
    "time": Form(_TIME, _time, _plain()),
    "timestamp": Form(_TIMESTAMP, _timestamp, _plain()),
    "timestamptz": Form(_TIMESTAMPTZ, _timestamptz, _plain()),
    "uuid": Form(UUID, _uuid, _plain()),
    "json": Form(_parse_json, _json, _plain()),
    "jsonb": Form(_parse_json, _json, _plain()),
    "null": Form(None, _instance(type(None)), _plain()),
}
