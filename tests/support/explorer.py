"""An exhaustive explorer of interleavings, on the memory of an x86 processor (total store order).

Threads are generator functions. They yield operations on named words of memory and get their results; what happens
between two yields is one step. Stores go through a buffer a thread, which drains one store at a time, at any time; a
thread sees its own. Locked operations and fences wait until the thread's own buffer is empty; `membarrier` drains the
buffers of all threads, one after the other, as its interrupts do.

A thread's state is its place in the code and its local variables. So every result must go into a variable or be used
up at once: nothing else may be held while a thread waits in a yield. Locals are hashable; words of memory too.
"""

from __future__ import annotations

import gc
from collections import deque
from collections.abc import Callable, Generator, Hashable, Mapping
from typing import Any

Op = tuple[Any, ...]
Thread = Generator[Op, Any, None]


class ProtocolError(AssertionError):
    """Some interleaving breaks the protocol; the message lists its steps."""


def load(word: str) -> Op:
    return ("load", word)


def store(word: str, value: Hashable) -> Op:
    return ("store", word, value)


def add(word: str, amount: int) -> Op:
    """Add atomically; the result is the old value."""
    return ("add", word, amount)


def swap(word: str, value: Hashable) -> Op:
    """Exchange atomically; the result is the old value."""
    return ("swap", word, value)


def take(word: str, old: Hashable, new: Hashable) -> Op:
    """Compare and swap; the result says whether it did."""
    return ("take", word, old, new)


def fence() -> Op:
    return ("fence",)


def lock(word: str) -> Op:
    """Wait until the word is 0, and make it 1."""
    return ("lock", word)


def unlock(word: str) -> Op:
    return store(word, 0)


def commit_wait(event_count: str, epoch: int) -> Op:
    """Wait until the event_count's count is not `epoch`."""
    return ("sleep", event_count, epoch)


def notify(event_count: str) -> Op:
    return add(event_count, 1)


def choose(n: int) -> Op:
    """Any number below n."""
    return ("choose", n)


def membarrier() -> Thread:
    yield fence()
    k = 0
    while (yield ("drain", k)):
        k += 1


class _Automaton:
    """A thread's states, found as they are reached. A state is known by one sequence of results that leads to it."""

    def __init__(self, body: Callable[[], Thread]) -> None:
        self._body = body
        self._known: dict[Hashable, int] = {}
        self._histories: list[tuple[Any, ...]] = []
        self.ops: list[Op | None] = []  # what the state is about to do; None: it has ended
        self._next: dict[tuple[int, Any], int] = {}
        self.start = self._reach(())

    def after(self, state: int, result: Any) -> int:
        key = (state, result)
        if key not in self._next:
            self._next[key] = self._reach((*self._histories[state], result))
        return self._next[key]

    def _reach(self, history: tuple[Any, ...]) -> int:
        thread = self._body()
        op: Op | None = None
        try:
            op = next(thread)
            for result in history:
                op = thread.send(result)
            key: Hashable = (op, *_frames(thread))
        except StopIteration:
            key, op = None, None
        if key not in self._known:
            self._known[key] = len(self.ops)
            self.ops.append(op)
            self._histories.append(history)
        return self._known[key]


def _frames(thread: Any) -> Generator[Hashable, None, None]:
    while thread is not None:
        frame = thread.gi_frame
        yield (frame.f_code, frame.f_lasti, tuple(sorted(frame.f_locals.items())))
        thread = thread.gi_yieldfrom


Buffer = tuple[tuple[str, Hashable], ...]
State = tuple[tuple[Hashable, ...], tuple[Buffer, ...], tuple[int, ...]]
Step = tuple[int, Op | None, Any]  # a thread's operation and its result, or none and the word whose store is seen


class _Explorer:
    def __init__(self, words: Mapping[str, Hashable], threads: Mapping[str, Callable[[], Thread]]) -> None:
        self.words = list(words)
        self.index = {word: i for i, word in enumerate(words)}
        self.names = list(threads)
        self.automata = [_Automaton(body) for body in threads.values()]
        self.start: State = (
            tuple(words.values()),
            ((),) * len(self.names),
            tuple(automaton.start for automaton in self.automata),
        )

    def memory(self, state: State) -> dict[str, Hashable]:
        return dict(zip(self.words, state[0], strict=True))

    def successors(self, state: State) -> Generator[tuple[Step, State], None, None]:
        memory, buffers, places = state
        for t, buffer in enumerate(buffers):
            if buffer:
                word, value = buffer[0]
                yield (
                    (t, None, word),
                    (self._written(memory, word, value), _replaced(buffers, t, buffer[1:]), places),
                )
            op = self.automata[t].ops[places[t]]
            if op is None:
                continue
            for result, new_memory, new_buffers in self._effects(op, t, memory, buffers):
                yield (
                    (t, op, result),
                    (new_memory, new_buffers, _replaced(places, t, self.automata[t].after(places[t], result))),
                )

    def text(self, step: Step) -> str:
        t, op, result = step
        if op is None:
            return f"{self.names[t]}'s store of {result} is seen"
        return f"{self.names[t]}: {op[0]} {', '.join(map(str, op[1:]))} -> {result}"

    def _effects(
        self, op: Op, t: int, memory: tuple[Hashable, ...], buffers: tuple[Buffer, ...]
    ) -> Generator[tuple[Any, tuple[Hashable, ...], tuple[Buffer, ...]], None, None]:
        kind, *arguments = op
        if kind == "load":
            own = [value for word, value in buffers[t] if word == arguments[0]]
            yield own[-1] if own else memory[self.index[arguments[0]]], memory, buffers
        elif kind == "store":
            yield None, memory, _replaced(buffers, t, (*buffers[t], (arguments[0], arguments[1])))
        elif kind == "choose":
            for choice in range(arguments[0]):
                yield choice, memory, buffers
        elif kind == "drain":
            if arguments[0] == len(buffers):
                yield False, memory, buffers
                return
            for word, value in buffers[arguments[0]]:
                memory = self._written(memory, word, value)
            yield True, memory, _replaced(buffers, arguments[0], ())
        elif buffers[t]:
            return  # a locked operation, or a fence: the buffer drains first
        elif kind == "fence":
            yield None, memory, buffers
        else:
            word = arguments[0]
            value: Any = memory[self.index[word]]
            if kind == "add":
                yield value, self._written(memory, word, value + arguments[1]), buffers
            elif kind == "swap":
                yield value, self._written(memory, word, arguments[1]), buffers
            elif kind == "take":
                took = value == arguments[1]
                yield took, self._written(memory, word, arguments[2]) if took else memory, buffers
            elif kind == "lock":
                if value == 0:
                    yield None, self._written(memory, word, 1), buffers
            elif kind == "sleep":
                if value != arguments[1]:
                    yield None, memory, buffers
            else:
                raise ValueError(f"no operation {kind!r}")

    def _written(self, memory: tuple[Hashable, ...], word: str, value: Hashable) -> tuple[Hashable, ...]:
        return _replaced(memory, self.index[word], value)


def _replaced(values: tuple[Any, ...], at: int, value: Any) -> tuple[Any, ...]:
    return (*values[:at], value, *values[at + 1 :])


def explore(
    words: Mapping[str, Hashable],
    threads: Mapping[str, Callable[[], Thread]],
    good: Callable[[dict[str, Hashable]], bool],
    most: int = 400_000,
) -> int:
    """Go through every interleaving. Returns the number of states.

    Parameters
    ----------
    words
        The words of memory and their first values.
    threads
        The threads by name.
    good
        Whether memory is as it should be at the end. Every state must be able to reach an end, in which no thread can
        move, and every end must be good; so threads that sleep for ever are fine when nothing is left to do.
    most
        States to look at.

    Raises
    ------
    ProtocolError
        A thread's assertion failed, an end is not good, or a state can reach no end.
    """
    collects = gc.isenabled()
    gc.disable()  # there are no cycles, and looking for them takes a third of the time
    try:
        return _explore(_Explorer(words, threads), good, most)
    finally:
        if collects:
            gc.enable()


def _explore(explorer: _Explorer, good: Callable[[dict[str, Hashable]], bool], most: int) -> int:
    came: dict[State, tuple[State, Step] | None] = {explorer.start: None}
    before: dict[State, list[State]] = {}
    ends: list[State] = []
    todo = deque([explorer.start])

    def fail(why: str, state: State) -> ProtocolError:
        steps: list[str] = []
        memory = explorer.memory(state)
        while (arrival := came[state]) is not None:
            state, step = arrival
            steps.append(explorer.text(step))
        return ProtocolError("\n  ".join([why, *reversed(steps), f"memory: {memory}"]))

    while todo:
        state = todo.popleft()
        moved = False
        try:
            for step, after in explorer.successors(state):
                moved = True
                before.setdefault(after, []).append(state)
                if after not in came:
                    came[after] = (state, step)
                    todo.append(after)
        except AssertionError as error:
            raise fail(f"assertion: {error}", state) from None
        if not moved:
            if not good(explorer.memory(state)):
                raise fail("a bad end", state)
            ends.append(state)
        if len(came) > most:
            raise RuntimeError(f"more than {most} states")
    ending = set(ends)
    while ends:
        for earlier in before.get(ends.pop(), ()):
            if earlier not in ending:
                ending.add(earlier)
                ends.append(earlier)
    for state in came:
        if state not in ending:
            raise fail("no end can be reached", state)
    return len(came)
