"""The Postgres types that batches are made of, under the names the protocol gives them."""

from __future__ import annotations

from collections.abc import Mapping

from .errors import DeclarationError

# `pg_type.oid` of the type and of its array. Built-in oids are fixed for all versions of Postgres.
OIDS: dict[str, tuple[int, int]] = {
    "boolean": (16, 1000),
    "smallint": (21, 1005),
    "integer": (23, 1007),
    "bigint": (20, 1016),
    "real": (700, 1021),
    "double precision": (701, 1022),
    "numeric": (1700, 1231),
    "text": (25, 1009),
    "varchar": (1043, 1015),
    "bpchar": (1042, 1014),
    "name": (19, 1003),
    "bytea": (17, 1001),
    "date": (1082, 1182),
    "time": (1083, 1183),
    "timestamp": (1114, 1115),
    "timestamptz": (1184, 1185),
    "interval": (1186, 1187),
    "uuid": (2950, 2951),
    "json": (114, 199),
    "jsonb": (3802, 3807),
}

ALIASES = {
    "bool": "boolean",
    "int2": "smallint",
    "int": "integer",
    "int4": "integer",
    "int8": "bigint",
    "float4": "real",
    "float8": "double precision",
    "decimal": "numeric",
    "character varying": "varchar",
    "char": "bpchar",
    "character": "bpchar",
    "time without time zone": "time",
    "timestamp without time zone": "timestamp",
    "timestamp with time zone": "timestamptz",
}

TEXT_KINDS = frozenset({"text", "varchar", "bpchar", "name"})
JSON_KINDS = frozenset({"json", "jsonb"})


def element(pg_type: str) -> str:
    """The type of an array's elements; of anything else, the type itself."""
    return pg_type[:-2] if is_array(pg_type) else pg_type


def is_array(pg_type: str) -> bool:
    return pg_type.endswith("[]")


def oid(pg_type: str) -> int:
    return OIDS[element(pg_type)][is_array(pg_type)]


def of_oid(number: int) -> str | None:
    for name, (scalar, array) in OIDS.items():
        if number == scalar:
            return name
        if number == array:
            return name + "[]"
    return None


def canonical(name: str) -> str:
    """The protocol's name of a type that a person wrote."""
    written = " ".join(name.lower().split())
    scalar, suffix = (written[:-2].rstrip(), "[]") if written.endswith("[]") else (written, "")
    scalar = ALIASES.get(scalar, scalar)
    if scalar not in OIDS:
        known = ", ".join(OIDS)
        raise DeclarationError(f'unknown type "{name}"; known are {known}, and each with [] behind it')
    return scalar + suffix


def same(one: str, other: str) -> bool:
    """The text kinds are one type here, as they are the same bytes on the wire."""
    if is_array(one) != is_array(other):
        return False
    one, other = element(one), element(other)
    return one == other or (one in TEXT_KINDS and other in TEXT_KINDS)


def declared(columns: Mapping[str, str] | None) -> dict[str, str] | None:
    if columns is None:
        return None
    return {name: canonical(pg_type) for name, pg_type in columns.items()}
