"""Callbacks of events: where they run, in which order, and what becomes of what they raise."""

import gc
import logging
import threading
import weakref

import pytest

import ostinato as ost


def test_all_run_on_one_thread_in_their_order():
    events = [ost.UserEvent() for _ in range(20)]
    seen, threads = [], set()
    for i, event in enumerate(events):
        for k in range(3):

            def note(_, i=i, k=k):
                seen.append((i, k))
                threads.add(threading.get_ident())

            event.add_done_callback(note)
    all_told = threading.Event()
    ost.merge(*events).add_done_callback(lambda _: all_told.set())
    for event in events:
        event.trigger()
    assert all_told.wait(60)
    assert seen == [(i, k) for i in range(20) for k in range(3)]
    assert len(threads) == 1
    assert threading.get_ident() not in threads


def test_at_once_in_the_caller_when_done():
    event, seen = ost.UserEvent(), []
    event.trigger()
    event.add_done_callback(lambda done: seen.append((done, threading.get_ident())))
    assert seen == [(event, threading.get_ident())]


def test_a_poisoned_event_calls_back_too():
    event, seen, told = ost.UserEvent(), [], threading.Event()
    event.add_done_callback(lambda event: (seen.append(event.exception()), told.set()))
    event.poison(ValueError("no ink"))
    assert told.wait(60)
    assert seen == [event.exception()]


def test_what_a_callback_raises_is_logged(caplog):
    def fail(_):
        raise ValueError("no ink")

    event, told = ost.UserEvent(), threading.Event()
    event.add_done_callback(fail)
    event.add_done_callback(lambda _: told.set())
    with caplog.at_level(logging.ERROR, logger="ostinato"):
        event.trigger()
        assert told.wait(60)
        event.add_done_callback(fail)
    assert [record.name for record in caplog.records] == ["ostinato"] * 2
    assert "no ink" in caplog.text


def test_callbacks_may_wait_and_make_more_happen():
    first, second, told = ost.UserEvent(), ost.UserEvent(), threading.Event()

    def carry_on(event):
        event.wait()
        second.add_done_callback(lambda _: told.set())
        second.trigger()

    first.add_done_callback(carry_on)
    first.trigger()
    assert told.wait(60)


def test_a_callback_must_be_callable():
    with pytest.raises(TypeError, match="must be callable"):
        ost.UserEvent().add_done_callback(None)


def test_an_event_that_nobody_holds_still_calls_back():
    source, told = ost.UserEvent(), threading.Event()
    ost.merge(source).add_done_callback(lambda _: told.set())
    gc.collect()
    source.trigger()
    assert told.wait(60)


def test_callbacks_are_let_go():
    class Kept:
        def __call__(self, _):
            told.set()

    told, event, kept = threading.Event(), ost.UserEvent(), Kept()
    alive = weakref.ref(kept)
    event.add_done_callback(kept)
    del kept
    assert alive() is not None
    event.trigger()
    assert told.wait(60)
    after = ost.UserEvent()  # the callback has returned by the time the next one is called
    told.clear()
    after.add_done_callback(lambda _: told.set())
    after.trigger()
    assert told.wait(60)
    gc.collect()
    assert alive() is None


def test_an_event_that_never_happens_is_garbage_with_its_callbacks():
    class Kept(list):
        pass

    kept = Kept()
    alive = weakref.ref(kept)
    event = ost.UserEvent()
    kept.append(event)
    event.add_done_callback(lambda _, kept=kept: kept.clear())
    del kept, event
    gc.collect()
    assert alive() is None


def test_many_callbacks_from_many_threads():
    count, told = 0, threading.Event()

    def note(_):
        nonlocal count
        count += 1  # one thread calls back, so no lock is needed

    def work():
        for _ in range(1000):
            event = ost.UserEvent()
            event.add_done_callback(note)
            event.trigger()

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    last = ost.UserEvent()
    last.add_done_callback(lambda _: told.set())
    last.trigger()
    assert told.wait(60)
    assert count == 4000
