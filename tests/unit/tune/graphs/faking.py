"""Measuring that does nothing but say what it is told: what is kept of it is tested without it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import ostinato as ost
from ostinato.tune.graphs.cost_store import POLICY, candidate_of
from ostinato.tune.graphs.executor import Executor, Request, Session
from ostinato.tune.graphs.signature import Signature
from ostinato.tune.graphs.tune_graph import Reports, tune_graph
from ostinato.tune.outcome import OpOutcome
from ostinato.tune.result import result_of


class Fake:
    """Measures signatures by a table of samples, or of statuses, by the label of the variant."""

    def __init__(self, known: Mapping[str, object] | None = None) -> None:
        self.known = dict(known or {})
        self.measured: list[str] = []
        self.before: Callable[[Signature], None] = lambda signature: None

    def measure(self, request: Request) -> ost.Report:
        signature = request.signature
        self.before(signature)
        self.measured.append(signature.label)
        labels = [variant.label for variant in signature.variants] or [signature.label]
        results = tuple(self._result(signature, place, label) for place, label in enumerate(labels))
        right = [result for result in results if result.status == "ok"]
        best = min(right, key=lambda result: result.time_ns or 0.0, default=None)
        ties = tuple(result for result in right if best and result.time_ns == best.time_ns)
        return ost.Report(
            op=signature.label,
            key=signature.key,
            policy=POLICY,
            best=best,
            ties=ties,
            results=results,
            default=results[0],
        )

    def _result(self, signature: Signature, place: int, label: str) -> ost.Result:
        found: Any = self.known.get(label, (1000.0,))
        candidate = candidate_of(
            signature, signature.declared.index(signature.variants[place]) if signature.declared else 0
        )
        if isinstance(found, str):
            return ost.Result(candidate=candidate, op=signature.label, status=ost.Status(found), message="so it is")
        return result_of(candidate, OpOutcome(signature.label, ost.Status.OK, tuple(found)), "cpu:0")

    @contextmanager
    def open(self, processors: list[str], progress: object, init: object, devices: object) -> Iterator[Executor]:
        yield self


def tune(graph: ost.Graph, fake: Fake, store: Path | None = None, **others: Any) -> Reports:
    return tune_graph(graph, store=store, **({"everything": True, "progress": False, "measuring": fake.open} | others))


def measure(signature: Signature, *, session: Session, **others: Any) -> ost.Report:
    return session.measure(Request(signature, **others))
