"""One candidate on its way through a search: a table of states, events, and the state that follows."""

from __future__ import annotations

import os
from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum, auto

from ostinato.tune.candidate import Call, Candidate
from ostinato.tune.outcome import Outcome


class State(Enum):
    """What a trial waits for."""

    OFFERED = auto()  # the strategy has offered it; the store has not been asked yet
    UNBUILT = auto()  # it waits for a builder
    BUILDING = auto()  # a builder builds or prepares it
    READY = auto()  # it waits for a device
    MEASURING = auto()  # a device measures it, or its worker has it ahead
    UNCHECKED = auto()
    """It was measured, and waits for a builder to check what it printed and wrote; `Trial.measured` is its outcome."""
    CHECKING = auto()  # a builder checks it
    DISTURBED = auto()  # something else computed on its device. It is measured again when no others are left
    DONE = auto()  # it has a result. A final, or what a rival came to, may begin its life again

    __hash__ = object.__hash__  # Enum's hashes a name, in Python, some twenty times for each candidate


class Event(Enum):
    """What happens to a trial."""

    NEED_BUILD = auto()  # it must be measured, and built before that
    ADMIT = auto()  # it must be measured, and nothing is to be built
    START = auto()  # a builder or a device has taken it
    RETURN = auto()  # its worker or device went away before the task began
    BUILD = auto()  # it is built
    DISTURB = auto()  # its samples were disturbed
    NEED_CHECK = auto()  # it was measured, and what it left must be checked
    END = auto()  # it came to a result: measured, failed, or known to the store
    CANCEL = auto()  # the search ends before it came to one
    DROP = auto()  # it was built for the final, which measures it in turns of its own

    __hash__ = object.__hash__


_TABLE: dict[State, dict[Event, State]] = {
    State.OFFERED: {Event.NEED_BUILD: State.UNBUILT, Event.ADMIT: State.READY},
    State.UNBUILT: {Event.START: State.BUILDING},
    State.BUILDING: {Event.BUILD: State.READY, Event.RETURN: State.UNBUILT},
    State.READY: {Event.START: State.MEASURING, Event.DROP: State.DONE},
    State.MEASURING: {Event.RETURN: State.READY, Event.DISTURB: State.DISTURBED, Event.NEED_CHECK: State.UNCHECKED},
    State.UNCHECKED: {Event.START: State.CHECKING},
    State.CHECKING: {Event.RETURN: State.UNCHECKED},
    State.DISTURBED: {Event.NEED_BUILD: State.UNBUILT, Event.ADMIT: State.READY},
    State.DONE: {Event.NEED_BUILD: State.UNBUILT, Event.ADMIT: State.READY},
}
for _state in (State.OFFERED, State.BUILDING, State.MEASURING, State.CHECKING, State.DISTURBED, State.DONE):
    _TABLE[_state][Event.END] = State.DONE  # also of what is done: a finalist fails in its turn
for _state in set(State) - {State.DONE}:
    _TABLE[_state][Event.CANCEL] = State.DONE

TRANSITIONS = {(state, event): then for state, events in _TABLE.items() for event, then in events.items()}
"""The state that follows a state and an event. Every other pair is a defect of the search, and raises."""


class IllegalTransition(RuntimeError):
    """A trial cannot be told this event in its state."""


@dataclass(slots=True, eq=False)
class Trial:
    """One candidate on its way through a search.

    Attributes
    ----------
    candidate
        The candidate.
    state
        What it waits for; only `Trials.move` changes it.
    measured
        What it came to and on which device, while that is checked.
    again
        Whether it was given another chance: a trial gets one.
    source
        Digest of the code that it stands for.
    modules
        Digests of the modules that a worker imports for it.
    prepared
        Path of the file with what `prepare` returned.
    scratch
        Its directory; None as long as it has none.
    tries
        How often it was put back because its worker or device went away.
    miss
        The field of the key that kept the store from answering.
    """

    candidate: Candidate
    state: State = State.OFFERED
    measured: tuple[Outcome, str] | None = None
    again: bool = False
    source: str = ""
    modules: Mapping[str, str] = field(default_factory=dict)
    prepared: str | None = None
    scratch: str | None = None
    tries: int = 0
    miss: str | None = None

    def built(self) -> None:
        """Note that it was built: what `prepare` returned is where it was told to save it."""
        if isinstance(self.candidate, Call):
            self.prepared = self.save_path

    @property
    def save_path(self) -> str:
        """Where what `prepare` returns is saved."""
        assert self.scratch is not None
        return os.path.join(self.scratch, "prepared.pickle")


class Trials:
    """The trials of one search, by what they wait for: each moves as `TRANSITIONS` says."""

    def __init__(self) -> None:
        waiting = (State.UNBUILT, State.READY, State.UNCHECKED, State.DISTURBED)
        self._waiting: dict[State, OrderedDict[Trial, None]] = {state: OrderedDict() for state in waiting}

    def count(self, state: State) -> int:
        """Return how many trials wait in a state."""
        return len(self._waiting[state])

    def first(self, state: State) -> Trial:
        """Return the trial that `start` would take."""
        return next(iter(self._waiting[state]))

    def waiting(self, *states: State) -> list[Trial]:
        """Return the trials that wait in some states, in the order in which they would be taken."""
        return [trial for state in states for trial in self._waiting[state]]

    def start(self, state: State) -> Trial:
        """Take the trial that has waited longest in a state, and return it."""
        trial = self.first(state)
        self.move(trial, Event.START)
        return trial

    def move(self, trial: Trial, event: Event) -> None:
        """Tell a trial an event; one that returns is the next to be taken."""
        state = trial.state
        following = _TABLE[state].get(event)
        if following is None:
            raise IllegalTransition(f"a trial that is {state.name.lower()} must not get the event {event.name}")
        if state in self._waiting:
            del self._waiting[state][trial]
        trial.state = following
        waiting = self._waiting.get(following)
        if waiting is not None:
            waiting[trial] = None
            if event is Event.RETURN:
                waiting.move_to_end(trial, last=False)


@dataclass(slots=True, eq=False)
class Task:
    """Something to be done for a trial.

    Attributes
    ----------
    trial
        The trial.
    what
        ``"build"``, ``"check"``, ``"measure"``, ``"anchor"`` or ``"final"``.
    op
        What a command calls the op if it does not say.
    seconds
        Limit of time.
    number, request
        What a worker is told, as JSON, and the number that it answers with; an empty text for a command.
    verify
        The name of the function that the worker checks with, if it does.
    bound
        Nanoseconds that it must stay below to win; None: there is no bound. For the agent of another host, which writes
        the request.
    source
        Digest of the candidate's code on this host. For such an agent, which compares it with its own.
    """

    trial: Trial
    what: str
    op: str
    seconds: float
    number: int = 0
    request: str = ""
    verify: str | None = None
    bound: float | None = None
    source: str = ""
