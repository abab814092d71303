"""Events: happening once, poison, waiting, merging, awaiting."""

import asyncio
import gc
import resource
import threading
import weakref

import pytest

import ostinato as ost
from ostinato.events import event_of


class Ended:
    """Like a run, as far as events know of it."""

    def __init__(self, event):
        self.event = event


def test_an_event_happens_once():
    event = ost.UserEvent()
    assert not event.done
    event.trigger()
    assert event.done
    assert event.exception() is None
    event.wait()
    for again in (event.trigger, event.poison):
        with pytest.raises(RuntimeError, match="triggered already"):
            again()


def test_poison_says_why():
    event, reason = ost.UserEvent(), ValueError("no ink")
    event.poison(reason)
    assert event.done
    with pytest.raises(ost.PoisonError, match="ValueError: no ink") as raised:
        event.wait()
    assert raised.value.__cause__ is reason
    assert event.exception() is raised.value
    for again in (event.trigger, event.poison):
        with pytest.raises(RuntimeError, match="poisoned already"):
            again()


def test_poison_without_a_reason():
    event = ost.UserEvent()
    event.poison()
    assert event.exception().__cause__ is None


def test_waiting_again_does_not_pile_up_tracebacks():
    event = ost.UserEvent()
    event.poison()
    depths = []
    for _ in range(3):
        with pytest.raises(ost.PoisonError) as raised:
            event.wait()
        depths.append(len(raised.traceback))
    assert len(set(depths)) == 1


@pytest.mark.parametrize("wrong", ["no ink", ValueError, 1])
def test_only_exceptions_are_reasons(wrong):
    event = ost.UserEvent()
    with pytest.raises(TypeError, match="exception"):
        event.poison(wrong)
    assert not event.done


@pytest.mark.parametrize("timeout", [0, 0.01, -1])
def test_waiting_in_vain(timeout):
    with pytest.raises(TimeoutError, match=f"{timeout} s"):
        ost.UserEvent().wait(timeout)


@pytest.mark.parametrize(("timeout", "error"), [("1", TypeError), (float("nan"), ValueError)])
def test_a_timeout_is_a_number(timeout, error):
    with pytest.raises(error):
        ost.UserEvent().wait(timeout)


def test_several_threads_wait_for_one_event():
    event, seen = ost.UserEvent(), []
    threads = [threading.Thread(target=lambda: seen.append(event.wait(60))) for _ in range(4)]
    for thread in threads:
        thread.start()
    event.trigger()
    for thread in threads:
        thread.join()
    assert seen == [None] * 4


def test_only_one_of_many_threads_triggers():
    for _ in range(50):
        event, refused = ost.UserEvent(), []
        start = threading.Barrier(4)

        def trigger(event=event, refused=refused, start=start):
            start.wait()
            try:
                event.trigger()
            except RuntimeError as error:
                refused.append(error)

        threads = [threading.Thread(target=trigger) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert len(refused) == 3


def test_merging_nothing():
    assert ost.merge().done


def test_a_merged_event_happens_with_the_last():
    events = [ost.UserEvent() for _ in range(5)]
    merged = ost.merge(*events, events[0], Ended(events[1]))
    for event in reversed(events):
        assert not merged.done
        event.trigger()
    assert merged.exception() is None


def test_one_poisoned_event_poisons_the_merged_one_at_once():
    one, other, reason = ost.UserEvent(), ost.UserEvent(), OSError("gone")
    merged = ost.merge(ost.merge(one, other), ost.merge())
    other.poison(reason)
    assert merged.exception().__cause__ is reason
    one.trigger()


def test_merging_what_is_poisoned_already():
    event = ost.UserEvent()
    event.poison()
    assert ost.merge(event).exception() is not None
    assert ost.merge(event, ignore_poison=True).exception() is None


def test_merging_in_spite_of_poison():
    one, other = ost.UserEvent(), ost.UserEvent()
    merged = ost.merge(one, other, ignore_poison=True)
    one.poison(ValueError())
    assert not merged.done
    other.trigger()
    assert merged.exception() is None


@pytest.mark.parametrize("wrong", [None, 1, threading.Event(), "event", ost.UserEvent, ost.Barrier(1)])
def test_what_is_no_event(wrong):
    with pytest.raises(TypeError, match="an event or a run must be given"):
        ost.merge(wrong)
    with pytest.raises(TypeError, match="an event or a run must be given"):
        event_of(wrong)


def test_long_chains_need_no_stack():
    first = last = ost.UserEvent()
    for _ in range(100_000):
        last = ost.merge(last)
    first.poison(ValueError("far away"))
    assert "far away" in str(last.exception())


def test_long_chains_end_without_stack_where_nothing_happens():
    first = last = ost.UserEvent()
    for _ in range(100_000):
        last = ost.merge(last)
    del last, first
    gc.collect()


def test_many_listeners():
    event = ost.UserEvent()
    merged = [ost.merge(event) for _ in range(100_000)]
    event.trigger()
    assert all(one.done for one in merged)


def test_memory_is_flat():
    def some():
        for _ in range(20_000):
            event = ost.UserEvent()
            merged = ost.merge(event, ost.merge())
            event.poison(ValueError())
            assert merged.done

    some()
    gc.collect()
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    for _ in range(5):
        some()
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 8_000  # KiB


def test_reasons_are_let_go():
    class Reason(Exception):
        pass

    event = ost.UserEvent()
    merged = ost.merge(event)
    reason = Reason()
    alive = weakref.ref(reason)
    event.poison(reason)
    del event, reason
    assert alive() is not None
    del merged
    gc.collect()
    assert alive() is None


def test_awaiting():
    async def main():
        event, done, failed = ost.UserEvent(), ost.UserEvent(), ost.UserEvent()
        done.trigger()
        await done
        threading.Timer(0.01, event.trigger).start()
        await event
        threading.Timer(0.01, failed.poison, [ValueError("no ink")]).start()
        with pytest.raises(ost.PoisonError, match="no ink"):
            await failed
        return await asyncio.gather(*[asyncio.wait_for(ost.merge(done, event), 60) for _ in range(3)])

    assert asyncio.run(main()) == [None] * 3


def test_awaiting_may_be_given_up():
    event = ost.UserEvent()

    async def main():
        with pytest.raises(asyncio.TimeoutError):
            await asyncio.wait_for(event, 0.01)

    asyncio.run(main())
    event.trigger()  # the loop is closed by now
    told = threading.Event()
    event.add_done_callback(lambda _: told.set())
    assert told.wait(60)


def test_awaiting_in_vain_leaves_nothing_behind():
    event, loops = ost.UserEvent(), []

    async def main():
        with pytest.raises(asyncio.TimeoutError):
            await asyncio.wait_for(event, 0)
        with pytest.raises(asyncio.TimeoutError):
            await asyncio.wait_for(event, 0.001)
        loops.append(weakref.ref(asyncio.get_running_loop()))

    for _ in range(3):
        asyncio.run(main())
    gc.collect()
    assert [loop() for loop in loops] == [None] * 3


@pytest.mark.parametrize("what", ["wait", "exception", "__await__"])
@pytest.mark.parametrize("done", [False, True])
def test_no_waiting_in_a_task(what, done):
    event = ost.UserEvent()
    if done:
        event.trigger()

    @ost.task
    def impatient():
        result = getattr(event, what)()
        if what == "__await__":
            next(result)

    graph = ost.Graph()
    graph.task(impatient)
    with ost.Machine(cpus=1) as machine, pytest.raises(ost.TaskError) as raised:
        graph.compile(machine).replay()
    assert isinstance(raised.value.__cause__, ost.ContractError)


def test_triggering_in_a_task():
    event = ost.UserEvent()

    @ost.task
    def ready():
        event.trigger()
        assert event.done

    graph = ost.Graph()
    graph.task(ready)
    with ost.Machine(cpus=1) as machine:
        graph.compile(machine).replay()
    event.wait()


def test_how_it_looks():
    event = ost.UserEvent()
    assert repr(event) == "<UserEvent pending>"
    event.poison()
    assert repr(event) == "<UserEvent poisoned>"
    assert repr(ost.merge()) == "<Event done>"
