"""The contract's section "Events, barriers, reservations": events, user events, merges."""

from __future__ import annotations

import asyncio
import concurrent.futures
import gc
import random
import signal
import subprocess
import sys
import threading
import weakref
from itertools import pairwise

import pytest

import ostinato as ost


@pytest.fixture
def event():
    return ost.UserEvent()


def poisoned(exc=None):
    event = ost.UserEvent()
    event.poison(exc)
    return event


def failing(machine):
    g = ost.Graph()
    g.task(lambda: {}["original"], access=())
    return g.compile(machine)


# User events


def test_a_user_event_is_an_event_that_is_not_done_until_triggered(event):
    assert isinstance(event, ost.Event)
    assert event.done is False
    event.trigger()
    assert event.done is True
    event.wait()
    event.wait(0)
    event.wait(timeout=0)
    assert event.exception() is None


@pytest.mark.parametrize("first", ["trigger", "poison"])
@pytest.mark.parametrize("second", ["trigger", "poison"])
def test_once_only(first, second, event):
    getattr(event, first)()
    with pytest.raises(RuntimeError):
        getattr(event, second)()
    assert event.done
    assert (event.exception() is None) == (first == "trigger")


def test_wait_with_a_timeout(event):
    for timeout in (0, 0.001, 0.0, -1):
        with pytest.raises(TimeoutError):
            event.wait(timeout)
    with pytest.raises(TimeoutError):
        event.wait(timeout=0.001)
    with pytest.raises(TypeError):
        event.wait("x")
    assert not event.done


def test_wait_until_another_thread_triggers(event, in_threads):
    woken = []
    in_threads(*[lambda: (event.wait(60), woken.append(1))] * 8, event.trigger)
    assert len(woken) == 8


@pytest.mark.parametrize("exc", [None, KeyError("why"), KeyboardInterrupt(), ost.TaskError("m", None, 3)])
def test_a_poisoned_event_raises_poison_error_with_its_cause(exc):
    event = poisoned(exc)
    assert event.done is True
    for _ in range(3):
        with pytest.raises(ost.PoisonError) as error:
            event.wait(60)
        assert error.value.__cause__ is exc
    assert isinstance(event.exception(), ost.PoisonError)
    assert event.exception().__cause__ is exc


def test_poison_takes_exc_by_name_and_only_exceptions(event):
    for bad in (3, "x", int):
        with pytest.raises((TypeError, ValueError)):
            event.poison(bad)
    assert not event.done
    event.poison(exc=KeyError())
    assert event.done


def test_only_one_of_many_threads_triggers(in_threads):
    for _ in range(50):
        event, won = ost.UserEvent(), []

        def trigger(event=event, won=won, poison=False):
            try:
                event.poison() if poison else event.trigger()
            except RuntimeError:
                return
            won.append(poison)

        in_threads(trigger, lambda trigger=trigger: trigger(poison=True), trigger)
        assert len(won) == 1
        assert (event.exception() is not None) == won[0]


# Callbacks


def test_callback_gets_the_event_at_once_in_the_caller_if_already_done(event):
    event.trigger()
    seen = []
    event.add_done_callback(lambda e: seen.append((e, threading.get_ident())))
    assert seen == [(event, threading.get_ident())]
    bad, seen = poisoned(), []
    bad.add_done_callback(lambda e: seen.append(e.exception()))
    assert isinstance(seen[0], ost.PoisonError)


def test_callbacks_run_once_each_in_order_on_one_thread_that_is_not_the_triggers(event):
    seen, finished = [], threading.Event()
    others = [ost.UserEvent() for _ in range(3)]
    for k in range(3):
        event.add_done_callback(lambda e, k=k: seen.append((k, e is event, e.done, threading.get_ident())))
    for other in others:
        other.add_done_callback(lambda e: seen.append((9, True, e.done, threading.get_ident())))
    assert seen == []
    event.trigger()
    for other in others:
        other.trigger()
    last = ost.UserEvent()
    last.add_done_callback(lambda e: finished.set())
    last.trigger()
    assert finished.wait(60)
    assert [s[:3] for s in seen] == [(0, True, True), (1, True, True), (2, True, True), *[(9, True, True)] * 3]
    assert len({s[3] for s in seen}) == 1
    assert seen[0][3] != threading.get_ident()


def test_callbacks_of_runs_and_of_their_events(machine):
    seen, finished = [], threading.Event()
    start = ost.UserEvent()
    g = ost.Graph()
    g.task(lambda: None, access=())
    with g.compile(machine) as program:
        run = program.submit(after=start)
        run.event.add_done_callback(lambda e: (seen.append(e.done), finished.set()))
        assert not seen
        start.trigger()
        assert finished.wait(60)
        assert seen == [True]
        assert run.done()


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_callback_that_raises_harms_nobody(event, caplog, capfd):
    finished = threading.Event()
    event.add_done_callback(lambda e: 1 / 0)
    event.add_done_callback(lambda e: finished.set())
    event.trigger()
    assert finished.wait(60)
    event.add_done_callback(lambda e: 1 / 0)


@pytest.mark.parametrize("bad", [None, 3, "x"])
def test_callback_must_be_callable(bad, event):
    with pytest.raises(TypeError):
        event.add_done_callback(bad)
    event.trigger()
    with pytest.raises(TypeError):
        event.add_done_callback(bad)


def test_a_callback_may_trigger_poison_merge_and_wait():
    events = [ost.UserEvent() for _ in range(100)]
    for a, b in pairwise(events):
        a.add_done_callback(lambda e, b=b: (e.wait(), ost.merge(e).wait(60), b.trigger()))
    events[0].trigger()
    events[-1].wait(60)
    assert all(event.done for event in events)


def test_a_long_chain_of_callbacks_does_not_recurse():
    events = [ost.UserEvent() for _ in range(5000)]
    for a, b in pairwise(events):
        a.add_done_callback(lambda e, b=b: b.trigger())
    events[0].trigger()
    events[-1].wait(60)


# Merges


def test_merge_of_nothing_is_done():
    assert ost.merge().done is True
    assert ost.merge(ignore_poison=True).done
    assert isinstance(ost.merge(), ost.Event)
    ost.merge().wait()


def test_merge_is_done_when_all_are_in_whatever_order():
    for seed in range(10):
        events = [ost.UserEvent() for _ in range(7)]
        merged = ost.merge(*events, events[3], ost.merge(*events[2:5]), ost.merge())
        for event in random.Random(seed).sample(events, 7):
            assert merged.done is False
            event.trigger()
        merged.wait(60)
        assert merged.done
        assert merged.exception() is None


def test_merge_of_very_many_and_of_a_deep_chain():
    events = [ost.UserEvent() for _ in range(5000)]
    merged, deep = ost.merge(*events), ost.merge(events[0])
    for event in events[1:]:
        deep = ost.merge(deep, event)
    for event in events:
        event.trigger()
    merged.wait(60)
    deep.wait(60)


def test_merge_carries_poison_with_its_cause(causes):
    cause = KeyError("why")
    merged = ost.merge(ost.merge(), poisoned(cause), ost.merge())
    with pytest.raises(ost.PoisonError) as error:
        merged.wait(60)
    assert cause in causes(error.value)
    assert cause in causes(ost.merge(ost.merge(merged)).exception())


def test_merge_that_ignores_poison(event):
    merged = ost.merge(event, poisoned(), ignore_poison=True)
    assert merged.done is False
    event.trigger()
    merged.wait(60)
    assert merged.exception() is None
    assert ost.merge(poisoned(), ignore_poison=True).exception() is None


def test_merge_of_runs_and_events(machine, event):
    g = ost.Graph()
    g.task(lambda: None, access=())
    with g.compile(machine) as program, failing(machine) as bad:
        run = program.submit(3, after=event)
        both = ost.merge(run, run.event, event)
        assert not both.done
        event.trigger()
        both.wait(60)
        assert run.done()
        failed = bad.submit()
        ost.merge(run, failed, ignore_poison=True).wait(60)
        assert failed.done()
        with pytest.raises(ost.PoisonError):
            ost.merge(run, failed).wait(60)


@pytest.mark.parametrize("bad", [[3], ["x"], [None], [[]]])
def test_merge_takes_events_and_runs(bad, event):
    with pytest.raises((TypeError, ValueError)):
        ost.merge(event, *bad)
    with pytest.raises((TypeError, ValueError)):
        ost.merge([event])


# Events of runs


def test_event_of_a_run_is_done_when_the_run_is(machine, event):
    g = ost.Graph()
    g.task(lambda: None, access=())
    with g.compile(machine) as program:
        run = program.submit(2, after=event)
        assert isinstance(run.event, ost.Event)
        assert not isinstance(run.event, ost.UserEvent)
        assert run.event.done is False
        event.trigger()
        run.event.wait(60)
        assert run.done()
        assert run.event.exception() is None


def test_event_of_a_failed_run_is_poisoned_with_the_original_in_its_causes(machine, causes):
    with failing(machine) as program:
        run = program.submit()
        with pytest.raises(ost.PoisonError) as error:
            run.event.wait(60)
        assert any(isinstance(cause, KeyError) for cause in causes(error.value))
        assert program.submit().exception(60) is not None  # the failure was delivered, so this one is its own


# Interop


def test_await_in_several_loops(event):
    results = []

    async def one():
        await event
        return event.done

    async def main():
        return await asyncio.gather(*(one() for _ in range(5)))

    threads = [threading.Thread(target=lambda: results.extend(asyncio.run(main()))) for _ in range(3)]
    for thread in threads:
        thread.start()
    event.trigger()
    for thread in threads:
        thread.join(60)
    assert results == [True] * 15
    asyncio.run(main())  # one that is done


def test_await_of_a_poisoned_event_raises():
    cause = KeyError()

    async def main(event):
        with pytest.raises(ost.PoisonError) as error:
            await event
        assert error.value.__cause__ is cause

    asyncio.run(main(poisoned(cause)))
    later = ost.UserEvent()
    threading.Timer(0.01, later.poison, [cause]).start()
    asyncio.run(main(later))


def test_await_that_is_given_up_leaves_the_event_alone(event):
    async def main():
        async def wait():
            await event

        with pytest.raises(TimeoutError):
            await asyncio.wait_for(wait(), 0.001)
        assert not event.done

    asyncio.run(main())
    event.trigger()  # the loop is closed
    assert event.done


def test_a_future_triggers_an_event_and_an_event_a_future(event):
    future: concurrent.futures.Future = concurrent.futures.Future()
    event.add_done_callback(lambda e: future.set_result(7))
    with concurrent.futures.ThreadPoolExecutor(1) as pool:
        pool.submit(lambda: 3).add_done_callback(lambda f: event.trigger())
        assert future.result(60) == 7


def test_events_are_collected(event):
    refs = []
    for _ in range(3):
        other = ost.UserEvent()
        other.add_done_callback(lambda e, other=other: other)  # a cycle
        merged = ost.merge(other, event)
        refs.append(weakref.ref(ost.merge(merged, other)))
    del other, merged
    gc.collect()
    assert [ref() for ref in refs] == [None] * 3
    event.trigger()


def test_ctrl_c_ends_a_wait():
    code = """
import ostinato as ost
event = ost.UserEvent()
try:
    print("ready", flush=True)
    event.wait()
except KeyboardInterrupt:
    event.trigger()
    event.wait()
    print("woken")
"""
    process = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        assert process.stdout.readline() == "ready\n"
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=60)
    finally:
        process.kill()
    assert "woken" in out, err
