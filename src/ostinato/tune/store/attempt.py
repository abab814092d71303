"""Attempts: what is stored of one op of a candidate, as a value, as a row and as a plain dict."""

from __future__ import annotations

import json
import math
import struct
from collections.abc import Sequence
from dataclasses import dataclass
from types import NoneType
from typing import Any, TypeVar

from ostinato.tune.candidate import canonical
from ostinato.tune.outcome import OpOutcome, Status
from ostinato.tune.store.database import LARGEST_SAMPLES, Code, Context, Damaged, Row, fault

LARGEST = 2**63 - 1
"""The largest integer that SQLite stores: more bytes than any machine has."""

_KINDS: dict[str, type | tuple[type, ...]] = {
    "operation": str,
    "key": dict,
    "model": str,
    "driver": str,
    "versions": dict,
    "policy": dict,
    "candidate": str,
    "config": dict,
    "description": dict,
    "source": str,
    "run": int,
    "phase": str,
    "device": (str, NoneType),
    "host": str,
    "time": (int, float),
    "op": str,
    "status": str,
    "samples": list,
    "workspace": int,
    "message": str,
    "contended": int,
    "overhead_ns": (int, float),
    "allowed": (int, float, NoneType),
}

_T = TypeVar("_T")

text = json.JSONEncoder().encode
"""Returns the JSON of a `str`."""


@dataclass(slots=True)
class StoredAttempt(OpOutcome):
    """What one op of a candidate came to, and on which device; None if it reached none."""

    device: str | None = None


def attempt(row: Row) -> StoredAttempt:
    """Return the attempt that a row holds."""
    problem = fault(row)
    if problem:
        raise Damaged(problem)
    try:
        found = StoredAttempt(
            op=_read(row.op, str),
            status=Status(row.status),
            samples=struct.unpack(f"<{len(row.samples) // 8}d", row.samples),
            workspace=row.workspace,
            message=_read(row.message, str),
            contended=row.contended,
            overhead_ns=row.overhead,
            device=None if row.device is None else _read(row.device, str),
        )
    except (ValueError, RecursionError) as error:
        raise Damaged(str(error)) from error
    if not all(map(math.isfinite, found.samples)) or min(found.samples, default=0.0) < 0:
        raise Damaged("a time is negative or not finite")
    if found.status is Status.RACED and not found.samples:
        raise Damaged("it was raced, but has no times")
    return found


def described(row: Row, config: str, description: str) -> dict[str, Any]:
    """Return a stored attempt as a plain dict."""
    found = attempt(row)
    try:
        context = {name: json.loads(text) for name, text in row.context._asdict().items()}
        context["model"] = context.pop("device")
        value = {
            **context,
            "candidate": row.code.candidate,
            "config": json.loads(config),
            "description": json.loads(description),
            "source": row.code.source,
            "run": row.run,
            "phase": row.phase,
            "device": found.device,
            "host": json.loads(row.host),
            "time": row.time,
            "op": found.op,
            "status": row.status,
            "samples": list(found.samples),
            "workspace": row.workspace,
            "message": found.message,
            "contended": row.contended,
            "overhead_ns": row.overhead,
            "allowed": row.allowed,
        }
        _check(value)
    except (ValueError, RecursionError) as error:
        raise Damaged(str(error)) from error
    return value


def is_sound(context: Context) -> bool:
    """Whether each field of a context is the text of what it stands for."""
    try:
        values = dict(zip(context._fields, map(json.loads, context), strict=True))
    except (ValueError, RecursionError):
        return False
    return all(isinstance(values[name], _KINDS["model" if name == "device" else name]) for name in values)


def restored(value: object) -> tuple[Row, str, str]:
    """Return what `described` made from, given what it returned."""
    if not isinstance(value, dict):
        raise ValueError(f"an attempt must be an object, got {value!r}")
    _check(value)
    fields = {**value, "device": value["model"]}
    row = Row(
        context=Context(*(canonical(fields[name]) for name in Context._fields)),
        code=Code(value["candidate"], value["source"]),
        run=value["run"],
        phase=value["phase"],
        device=None if value["device"] is None else text(value["device"]),
        host=text(value["host"]),
        time=float(value["time"]),
        op=text(value["op"]),
        status=Status(value["status"]).value,
        samples=packed(list(map(float, value["samples"]))),
        workspace=value["workspace"],
        message=text(value["message"]),
        contended=value["contended"],
        overhead=float(value["overhead_ns"]),
        allowed=None if value["allowed"] is None else float(value["allowed"]),
    )
    attempt(row)
    return row, canonical(value["config"]), canonical(value["description"])


def _check(value: dict[str, Any]) -> None:
    """Raise `ValueError` if something is missing, or no such value."""
    for name, kinds in _KINDS.items():
        if name not in value:
            raise ValueError(f"{name!r} is missing")
        if not isinstance(value[name], kinds) or isinstance(value[name], bool):
            kind = " or ".join(each.__name__ for each in (kinds if isinstance(kinds, tuple) else (kinds,)))
            raise ValueError(f"{name!r} must be of type {kind}, got {value[name]!r}")
    for name in ("run", "workspace", "contended"):
        if not 0 <= value[name] <= LARGEST:
            raise ValueError(f"{name!r} must be from 0 to {LARGEST}, got {value[name]!r}")
    for name in ("candidate", "source", "phase"):
        if not value[name].isascii():
            raise ValueError(f"{name!r} must be ASCII, got {value[name]!r}")
    if not all(isinstance(sample, int | float) and not isinstance(sample, bool) for sample in value["samples"]):
        raise ValueError("'samples' must hold numbers")


def packed(samples: Sequence[float]) -> bytes:
    """Return samples as bytes; more than a store may hold say nothing new, and are left out."""
    if len(samples) > LARGEST_SAMPLES // 8:
        samples = samples[: LARGEST_SAMPLES // 8]
    return struct.pack(f"<{len(samples)}d", *samples)


def _read(value: str, kind: type[_T]) -> _T:
    found = json.loads(value)
    if not isinstance(found, kind):
        raise ValueError(f"a {kind.__name__} must be named, got {value[:80]!r}")
    return found
