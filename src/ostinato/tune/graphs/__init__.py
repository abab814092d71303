"""Tuning the tasks of graphs, and what compile asks of the store.

This module imports next to nothing: compile asks it even where nothing was ever tuned.
"""

from __future__ import annotations

import functools
import os
import sys
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from ostinato.compiler.costs import Costed, Costing, cost_by_estimate
from ostinato.compiler.summary import Summary, summarize
from ostinato.environment import default_store
from ostinato.errors import TuningError
from ostinato.graph.variant import variants_of
from ostinato.tune.graphs.names import name_in_store, operation_of

if TYPE_CHECKING:
    from ostinato.devices.device import Device
    from ostinato.ranks.agreement import Agreement


def costing(store: str | os.PathLike[str] | None) -> Costing:
    """Return the costing that knows what a store knows; `store` is its file, None for the default one.

    If there is no default store, nothing is imported and no file is made. A named store that is missing raises a
    `TuningError`; the costing itself raises it if a named store cannot be read.
    """
    named = store is not None
    path = os.path.abspath(store) if store is not None else default_store()

    def costed(summary: Summary) -> Costed:
        if not os.path.isfile(path) and not _remembered(path):
            if named:
                raise TuningError(f"costs= names the store {path}, but there is no such file; graph.tune makes one")
            return cost_by_estimate(summary)
        if not named and not _remembered(path) and not _may_have_costs(path, summary):
            return cost_by_estimate(summary)
        from pathlib import Path

        from ostinato.tune.graphs.stored_costs import stored_costs

        return stored_costs(summary.ops, Path(path), named)

    if named and not os.path.isfile(path):
        costed(summarize(()))
    return costed


def costing_of_ranks(
    store: str | os.PathLike[str] | None, agreement: Agreement, devices: Callable[[], Sequence[Device]]
) -> Costing:
    """Return the costing with which all ranks of a program run the same variants, whatever the store of each knows.

    `store`: as for `costing`; `devices`: returns those of the machine, asked only if a task has variants for devices.
    """
    own = costing(store)
    named = store is not None
    path = os.path.abspath(store) if store is not None else default_store()

    def costed(summary: Summary) -> Costed:
        from pathlib import Path

        offers = {}
        if any(len(variants_of(summary.ops[index].recorded)) > 1 for index in summary.first.tolist()):
            from ostinato.tune.graphs.stored_costs import find_offers

            offers = find_offers(summary.ops, Path(path), named, devices)
        winners = agreement.agree_on_winners(offers)
        if not offers and not winners.records:
            return own(summary)
        from ostinato.tune.graphs.stored_costs import stored_costs

        return stored_costs(summary.ops, Path(path), named, winners.records)

    return costed


def _remembered(path: str) -> bool:
    """Whether this process has tuned something that is in no file."""
    memory = sys.modules.get("ostinato.tune.graphs.cost_store")
    return memory is not None and bool(memory.knows(path))


def _may_have_costs(path: str, summary: Summary) -> bool:
    """Whether a store has anything of the tasks of ops. One that has not is not worth the tuner's import."""
    if "ostinato.tune.graphs.stored_costs" in sys.modules:
        return True
    try:
        states = [os.stat(file) for file in (path, f"{path}-wal") if os.path.exists(file)]
    except OSError:
        return True
    import json

    different = [*summary.first.tolist(), *summary.others.tolist()]
    names = {name_in_store(summary.ops[index].body) for index in different}
    operations = frozenset(json.dumps(operation_of(name)) for name in names if name is not None)
    return _has_any(path, operations, tuple((each.st_ino, each.st_size, each.st_mtime_ns) for each in states))


@functools.lru_cache(maxsize=8)
def _has_any(path: str, operations: frozenset[str], state: object) -> bool:
    from ostinato.tune.store.database import StoreError, holds

    try:
        return holds(path, operations)
    except StoreError:
        return True  # reading it for the costs says what is wrong
