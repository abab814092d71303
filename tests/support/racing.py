"""Races over times that are known already: recorded ones, or drawn from a model."""

from __future__ import annotations

import itertools
import json
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from statistics import median

import ostinato as ost
from ostinato.tune.racing.race import EntryKey, Race, Verdict
from ostinato.tune.stopping import Stopping, interval

RECORDED = Path(__file__).parents[1] / "unit" / "tune" / "recorded"

Draw = Callable[[], float]


def entry(index: int) -> EntryKey:
    """Return the entry of a number, smaller ids for smaller numbers."""
    return f"{index:06}", "op"


def screened(race: Race, key: EntryKey, device: str, draw: Draw, most: int, workspace: int = 0) -> int:
    """Measure an entry as a worker does, of at most so many samples; return how many it took."""
    policy = race.policy
    stopping = Stopping(policy.rel_ci, policy.min_samples, race.bound(device))
    samples = [draw()]
    while not stopping.add(samples[-1]) and len(samples) < most:
        samples.append(draw())
    race.measured(key, device, samples, workspace)
    return len(samples)


def finished(race: Race, draw: Callable[[EntryKey, int], Sequence[float]]) -> int:
    """Play the final, with the samples of an entry's turn in a round; return how many they were."""
    turns = taken = 0
    rounds: dict[EntryKey, int] = {}
    while due := race.finalists():
        key = due[0]
        samples = draw(key, rounds.setdefault(key, 0))
        rounds[key] += 1
        race.final(key, samples)
        taken += len(samples)
        turns += 1
        assert turns <= 8 * 15, "a final that does not end"
    return taken


@dataclass(frozen=True)
class Found:
    """What a way to choose found: who won, who ties, and how many samples it took."""

    verdict: Verdict
    samples: int


@dataclass(frozen=True)
class Space:
    """A recorded space: of each configuration, the samples of each visit, in ns."""

    name: str
    configs: list[dict[str, int]]
    visits: list[list[list[int]]]

    @cached_property
    def times(self) -> list[float]:
        """The median of all samples of each configuration."""
        return [median(sample for visit in visits for sample in visit) for visits in self.visits]

    def slower(self, key: EntryKey) -> float:
        """Return by which part an entry is slower than the fastest, by all samples."""
        return self.times[int(key[0])] / min(self.times) - 1

    def fixed(self, seed: int, repetitions: int) -> Found:
        """Measure every configuration equally often, and take the least median.

        What one visit lacks is taken from the next: so many repetitions are spread over time, not taken in a row.
        """
        rng = random.Random(seed)
        order, visit = self._plan(rng)
        found = {}
        for index in order:
            visits = self.visits[index][visit[index] :] + self.visits[index][: visit[index]]
            ordered = sorted(list(itertools.chain.from_iterable(visits))[:repetitions])
            found[entry(index)] = median(ordered), *interval([float(sample) for sample in ordered])
        best = min(found, key=lambda key: found[key])
        ties = [key for key, (_, low, _) in found.items() if key != best and low <= found[best][2]]
        return Found(Verdict(best, (best, *ties)), repetitions * len(order))

    def race(self, seed: int, policy: ost.Policy | None = None) -> Found:
        """Race: the same order and the same visits as fixed repetition of that seed; then the final.

        A round of the final is one visit; each finalist's turn, the next samples of it.
        """
        rng = random.Random(seed)
        order, visit = self._plan(rng)
        race = Race(default=None, policy=policy or ost.Policy())
        taken = 0
        for index in order:
            samples = iter(self.visits[index][visit[index]])
            most = len(self.visits[index][visit[index]])
            taken += screened(race, entry(index), "cpu:0", lambda samples=samples: float(next(samples)), most)
        first, count, turn = rng.randrange(6), len(self.visits[0]), race.turn.min_samples

        def drawn(key: EntryKey, number: int) -> list[int]:
            at = number // count * turn
            return self.visits[int(key[0])][(first + number) % count][at : at + turn]

        taken += finished(race, drawn)
        return Found(race.verdict(), taken)

    def _plan(self, rng: random.Random) -> tuple[list[int], list[int]]:
        """Return in which order configurations are measured, and from which of its visits each is taken."""
        order = list(range(len(self.configs)))
        rng.shuffle(order)
        return order, [rng.randrange(len(self.visits[0])) for _ in order]


def recorded() -> list[Space]:
    """Return the spaces that were recorded."""
    found = []
    for path in sorted(RECORDED.glob("*.json")):
        data = json.loads(path.read_text())
        entries, unit = data["entries"], data["unit_ns"]
        visits = [[[sample * unit for sample in visit] for visit in one["visits"]] for one in entries]
        found.append(Space(data["space"], [one["config"] for one in entries], visits))
    return found
