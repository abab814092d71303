"""The tuner: candidates per second, what waits cost, its parts, and racing; by itself, two devices against one."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from unittest import mock

from benchmarks import tuning_devices, tuning_parts, tuning_races, tuning_rates, tuning_waits
from benchmarks.context import Context


@contextmanager
def _own_directories() -> Iterator[Path]:
    """Lease and remember in a directory of the benchmark's own."""
    with tempfile.TemporaryDirectory(prefix="ostinato-bench-") as name:
        chosen = {"OSTINATO_LEASE_DIR": f"{name}/leases", "OSTINATO_CACHE_DIR": f"{name}/cache"}
        with mock.patch.dict(os.environ, chosen):
            yield Path(name)


def run(context: Context) -> None:
    """Measure all but devices."""
    with _own_directories() as directory:
        for part in (tuning_parts, tuning_rates, tuning_waits, tuning_races):
            part.run(context, directory)


def run_devices(context: Context) -> None:
    """Measure one device and two."""
    with _own_directories() as directory:
        tuning_devices.run(context, directory)
