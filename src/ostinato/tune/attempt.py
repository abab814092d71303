"""Attempts: what is stored of one op of a candidate, as a value, as a row and as a plain dict."""

from __future__ import annotations

import json
import struct
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from ostinato.tune.database import Row
from ostinato.tune.status import Status

__all__ = ["Outcome", "StoredAttempt", "attempt", "described", "packed"]


class Outcome(Protocol):
    """What is stored of one op of a candidate: an `ostinato.tune.outcome.OpOutcome`, or anything like it."""

    @property
    def op(self) -> str: ...
    @property
    def status(self) -> Status: ...
    @property
    def samples(self) -> Sequence[float]: ...
    @property
    def workspace(self) -> int: ...
    @property
    def message(self) -> str: ...
    @property
    def contended(self) -> int: ...


@dataclass(slots=True, kw_only=True)
class StoredAttempt:
    """What one op of a candidate came to; the attributes are those of `ostinato.Result`."""

    op: str
    status: Status
    samples: tuple[float, ...] = field(default=(), repr=False)
    workspace: int = 0
    message: str = ""
    contended: int = 0
    device: str | None = None


def attempt(row: Row) -> StoredAttempt:
    """Return the attempt that a row holds."""
    return StoredAttempt(
        op=json.loads(row.op),
        status=Status(row.status),
        samples=_unpacked(row.samples),
        workspace=row.workspace,
        message=json.loads(row.message),
        contended=row.contended,
        device=None if row.device is None else json.loads(row.device),
    )


def described(row: Row, config: str, description: str) -> dict[str, Any]:
    """Return a stored attempt as a plain dict."""
    context = {name: json.loads(text) for name, text in row.context._asdict().items()}
    context["model"] = context.pop("device")
    return {
        **context,
        "candidate": row.code.candidate,
        "config": json.loads(config),
        "description": json.loads(description),
        "source": row.code.source,
        "run": row.run,
        "phase": row.phase,
        "device": None if row.device is None else json.loads(row.device),
        "host": row.host,
        "time": row.time,
        "op": json.loads(row.op),
        "status": row.status,
        "samples": list(_unpacked(row.samples)),
        "workspace": row.workspace,
        "message": json.loads(row.message),
        "contended": row.contended,
        "allowed": row.allowed,
    }


def packed(samples: Sequence[float]) -> bytes:
    return struct.pack(f"<{len(samples)}d", *samples)


def _unpacked(samples: bytes) -> tuple[float, ...]:
    return struct.unpack(f"<{len(samples) // 8}d", samples)
