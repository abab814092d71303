"""Strategies: in which order candidates of a space are tried, and which of them."""

from __future__ import annotations

import itertools
import math
import random
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from ostinato.tune.candidate import Candidate
from ostinato.tune.outcome import Status
from ostinato.tune.policy import whole
from ostinato.tune.result import Result
from ostinato.tune.space import Space

_STALE = 20
"""After so many proposals in a row that were made before or are excluded, Optuna's is replaced by one by chance."""


class Strategy:
    """Offers candidates, one by one, and is told what became of them.

    A strategy of one's own overrides `ask`, and `tell` if it learns.
    """

    def ask(self) -> Candidate | None:
        """Return the next candidate; None if there is none any more. Earlier ones need not have been measured yet."""
        raise NotImplementedError

    def tell(self, result: Result) -> None:
        """Note what became of a candidate: once for each op it reported."""

    def rest(self) -> Iterator[Candidate]:
        """Yield the candidates that were promised and not offered yet: they are reported even if nobody asks."""
        return iter(())


class Listed(Strategy):
    """Offers candidates in the order in which they are given."""

    def __init__(self, candidates: Iterable[Candidate]) -> None:
        self._left = iter(candidates)
        self._promised = not isinstance(candidates, Iterator)  # a generator's next one is not made before it is wanted

    def ask(self) -> Candidate | None:
        return next(self._left, None)

    def rest(self) -> Iterator[Candidate]:
        return self._left if self._promised else iter(())


class Exhaustive(Listed):
    """Offers every configuration of a space, in its order.

    Parameters
    ----------
    space
        The configurations.
    make
        Makes the candidate of a configuration.

    Examples
    --------
    >>> import ostinato as ost
    >>> space = ost.Space({"tile": [16, 32]})
    >>> strategy = Exhaustive(space, lambda config: ost.Candidate.command(["./matmul", "{tile}"], config))
    >>> strategy.ask().config, strategy.ask().config, strategy.ask()
    ({'tile': 16}, {'tile': 32}, None)
    """

    def __init__(self, space: Space, make: Callable[[dict[str, Any]], Candidate]) -> None:
        super().__init__(map(make, space))


class Random(Strategy):
    """Offers configurations of a space by chance, each as likely as the others and none twice.

    Parameters
    ----------
    space
        The configurations.
    make
        Makes the candidate of a configuration.
    n
        How many; None: all.
    seed
        The same seed gives the same candidates in the same order.

    Examples
    --------
    >>> import ostinato as ost
    >>> space = ost.Space({"tile": [16, 32, 64], "unroll": [1, 2]}, where=lambda c: c["tile"] * c["unroll"] < 128)
    >>> strategy = Random(space, lambda config: ost.Candidate.command(["./matmul", "{tile}", "{unroll}"], config))
    >>> len(list(iter(strategy.ask, None)))
    5
    """

    def __init__(
        self, space: Space, make: Callable[[dict[str, Any]], Candidate], n: int | None = None, seed: int = 0
    ) -> None:
        if n is not None:
            whole("n", n)
        self._make = make
        self._left = n
        self._space = space
        self._draws = _Draws(space, random.Random(seed))

    def ask(self) -> Candidate | None:
        number = None if self._left == 0 else self._draws.next()
        config = None if number is None else self._space.at(number)
        if config is None:
            return None
        if self._left is not None:
            self._left -= 1
        return self._make(config)


class Optuna(Strategy):
    """Offers configurations that Optuna proposes: by what became of earlier ones, better ones more often. None twice.

    What failed, and what the space excludes, counts as worse than everything measured. Values that are numbers in
    ascending or descending order are told to Optuna as such: it knows what lies between.

    Needs Optuna: ``pip install 'ostinato[optuna]'``.

    Parameters
    ----------
    space
        The configurations.
    make
        Makes the candidate of a configuration.
    n
        How many at most.
    sampler
        One of ``optuna.samplers``; None: ``TPESampler(seed=seed)``.
    seed
        The same seed, and the same results in the same order, give the same candidates.

    Raises
    ------
    ImportError
        If Optuna is missing.
    """

    def __init__(
        self,
        space: Space,
        make: Callable[[dict[str, Any]], Candidate],
        n: int,
        sampler: Any = None,
        seed: int = 0,
    ) -> None:
        try:
            import optuna
        except ImportError as error:
            raise ImportError(
                "Optuna proposes the candidates, and is missing: pip install 'ostinato[optuna]'"
            ) from error
        self._space = space
        self._make = make
        self._left = whole("n", n)
        self._draws = _Draws(space, random.Random(seed))
        self._candidates: dict[int, str | None] = {}  # by number in the space; None if it is excluded
        self._running: dict[str, Any] = {}  # by candidate: trials whose end Optuna was not told
        self._ends: dict[str, float | None] = {}  # by candidate: what is minimised; None if it failed
        self._states = optuna.trial.TrialState
        before = optuna.logging.get_verbosity()
        optuna.logging.set_verbosity(optuna.logging.WARNING)  # it announces every study on stderr
        try:
            self._study = optuna.create_study(sampler=sampler or optuna.samplers.TPESampler(seed=seed))
        finally:
            optuna.logging.set_verbosity(before)

    def ask(self) -> Candidate | None:
        for candidate_id in [candidate_id for candidate_id in self._running if candidate_id in self._ends]:
            self._end(self._running.pop(candidate_id), candidate_id)
        proposals = 0
        while self._left:
            if proposals >= _STALE:
                number = self._draws.next()
                if number is None:
                    break
                if number in self._candidates:
                    continue
                self._study.enqueue_trial(self._positions(number))
            proposals += 1
            candidate = self._proposed(self._study.ask())
            if candidate is not None:
                self._left -= 1
                return candidate
        return None

    def tell(self, result: Result) -> None:
        identity = result.candidate.id
        if result.status in (Status.OK, Status.RACED) and result.time_ns is not None:
            # The logarithm, since ratios matter. Of the ops of one command, the fastest counts.
            value = math.log(max(result.time_ns, 1e-3))
            earlier = self._ends.get(identity)
            self._ends[identity] = value if earlier is None else min(value, earlier)
        elif result.status.final:
            self._ends.setdefault(identity, None)

    def _proposed(self, trial: Any) -> Candidate | None:
        """Return the candidate of a trial, or end the trial and return None if it is excluded or was offered before."""
        number = self._number(trial)
        if number not in self._candidates:
            config = self._space.at(number)
            candidate = None if config is None else self._make(config)
            self._candidates[number] = None if candidate is None else candidate.id
            if candidate is not None and candidate.id not in self._running and candidate.id not in self._ends:
                self._running[candidate.id] = trial
                return candidate
        self._end(trial, self._candidates[number])
        return None

    def _end(self, trial: Any, candidate_id: str | None) -> None:
        if candidate_id is not None and candidate_id not in self._ends:
            self._study.tell(trial, state=self._states.FAIL)  # a second trial of what runs: to be forgotten
            return
        value = None if candidate_id is None else self._ends[candidate_id]
        if value is None:
            self._study.tell(trial, state=self._states.PRUNED)  # without a value: worse than everything
        else:
            self._study.tell(trial, value)

    def _number(self, trial: Any) -> int:
        """Return which combination of the space a trial proposes."""
        number = 0
        for name, values in self._space.parameters.items():
            last = len(values) - 1
            if last == 0:
                place = 0
            elif _ascends(values) or _ascends(values[::-1]):
                place = trial.suggest_int(name, 0, last)
            else:
                place = trial.suggest_categorical(name, range(last + 1))
            number = number * len(values) + place
        return number

    def _positions(self, number: int) -> dict[str, int]:
        """Return a combination as Optuna has it: by the position of each value."""
        positions = {}
        for name, values in reversed(self._space.parameters.items()):
            number, positions[name] = divmod(number, len(values))
        return positions


class _Draws:
    """Numbers of the configurations of a space, drawn without putting back.

    The numbers are shuffled as they are drawn (Fisher and Yates), so the space may be larger than memory.
    """

    def __init__(self, space: Space, rng: random.Random) -> None:
        self._space = space
        self._rng = rng
        self._left = space.size
        self._moved: dict[int, int] = {}

    def next(self) -> int | None:
        """Return the next number; None if all were drawn."""
        while self._left:
            self._left -= 1
            place = self._rng.randrange(self._left + 1)
            last = self._moved.pop(self._left, self._left)
            number = self._moved.get(place, place) if place < self._left else last
            if place < self._left:
                self._moved[place] = last
            if self._space.at(number) is not None:
                return number
        return None


def _ascends(values: tuple[Any, ...]) -> bool:
    return all(isinstance(value, int | float) and not isinstance(value, bool) for value in values) and all(
        one < other for one, other in itertools.pairwise(values)
    )
