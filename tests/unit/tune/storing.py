"""What tests of the store have in common: candidates, devices, a search."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import ostinato as ost
from ostinato.tune.leases.device import Device
from ostinato.tune.store.key import environment
from ostinato.tune.store.store import Search, Store, StoredAttempt

DEVICE = Device(name="sim:a", kind="sim", identities=("sim:a",), model="simulated", driver="1")
POLICY = {"cache": "warm", "rel_ci": 0.01}


def candidate(tile: object = 1, factory: str = "module:factory") -> ost.Candidate:
    return ost.Candidate.call(factory, {"tile": tile})


def outcome(
    op: str = "matmul", status: str = "ok", samples: Sequence[float] = (1.5, 2.5), **others: Any
) -> StoredAttempt:
    return StoredAttempt(op=op, status=ost.Status(status), samples=tuple(samples), **others)


def search(
    store: Store,
    op: str = "matmul",
    key: Mapping[str, Any] | None = None,
    *,
    devices: Sequence[Device] = (DEVICE,),
    versions: Mapping[str, str] | None = None,
    policy: Mapping[str, Any] = POLICY,
) -> Search:
    there = environment(devices)
    if versions is not None:
        there["versions"] = dict(versions)
    return store.search(op, {"n": 512} if key is None else key, there, policy)


@contextmanager
def public_directory() -> Iterator[Path]:
    """A directory that every user may enter and read: those of pytest are for its own user only."""
    with tempfile.TemporaryDirectory() as name:
        directory = Path(name)
        directory.chmod(0o755)
        yield directory
