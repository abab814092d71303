"""The loop: descriptors, moments, and what is to be done before a wait."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

from ostinato.tune.workers.loop import Loop


@pytest.fixture
def loop() -> Iterator[Loop]:
    loop = Loop()
    yield loop
    loop.close()


@pytest.fixture
def pipe() -> Iterator[tuple[int, int]]:
    ends = os.pipe()
    yield ends
    for end in ends:
        os.close(end)


def test_calls_what_watches_a_readable_descriptor(loop: Loop, pipe: tuple[int, int]) -> None:
    heard: list[bytes] = []
    loop.watch(pipe[0], lambda: heard.append(os.read(pipe[0], 10)))
    loop.turn(0)
    assert heard == []
    os.write(pipe[1], b"a")
    loop.turn(10)
    assert heard == [b"a"]


def test_calls_nobody_who_was_told_to_forget_in_the_same_turn(loop: Loop, pipe: tuple[int, int]) -> None:
    other = os.pipe()
    called: list[str] = []

    def first(name: str, forgets: int) -> None:
        called.append(name)
        loop.forget(forgets)

    loop.watch(pipe[0], lambda: first("one", other[0]))
    loop.watch(other[0], lambda: first("other", pipe[0]))
    os.write(pipe[1], b"a")
    os.write(other[1], b"a")
    loop.turn(10)
    assert len(called) == 1
    for end in other:
        os.close(end)


def test_moments_come_in_order_and_not_before_their_time(loop: Loop) -> None:
    now = loop.now()
    called: list[str] = []
    loop.at(now + 3600, lambda: called.append("never"))
    loop.at(now + 0.02, lambda: called.append("late"))
    loop.at(now + 0.01, lambda: called.append("early"))
    while len(called) < 2:
        loop.turn(10)
        assert loop.now() >= now + 0.01 * len(called)
    assert called == ["early", "late"]


def test_a_cancelled_moment_is_not_called_nor_waited_for(loop: Loop) -> None:
    called: list[str] = []
    loop.at(loop.now(), lambda: called.append("cancelled")).cancel()
    loop.turn(0)
    assert called == []


def test_what_is_due_before_a_wait_is_done_once(loop: Loop) -> None:
    called: list[str] = []
    loop.before_waiting(lambda: called.append("now"))
    loop.turn(0)
    loop.turn(0)
    assert called == ["now"]
