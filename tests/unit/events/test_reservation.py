"""Reservations: who holds, who waits, and which release is whose."""

import threading

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

import ostinato as ost


def test_one_after_the_other():
    reservation = ost.Reservation()
    grants = [reservation.acquire() for _ in range(3)]
    for i in range(3):
        assert [grant.done for grant in grants] == [k <= i for k in range(3)]
        reservation.release()
    with pytest.raises(RuntimeError, match="nothing to release"):
        reservation.release()


def test_neighbours_share_and_nobody_overtakes():
    reservation = ost.Reservation()
    grants = [reservation.acquire(exclusive) for exclusive in (False, False, True, False, False)]

    def held():
        return [grant.done for grant in grants]

    assert held() == [True, True, False, False, False]
    reservation.release()
    assert held() == [True, True, False, False, False]
    reservation.release()
    assert held() == [True, True, True, False, False]
    reservation.release()
    assert all(held())


def test_acquire_after_an_event():
    reservation, start = ost.Reservation(), ost.UserEvent()
    later = reservation.acquire(after=start)
    first = reservation.acquire()
    assert first.done
    start.trigger()
    assert not later.done
    reservation.release()
    assert later.done


def test_a_poisoned_request_holds_nothing():
    reservation, start, reason = ost.Reservation(), ost.UserEvent(), ValueError("no ink")
    grant = reservation.acquire(after=start)
    start.poison(reason)
    assert grant.exception().__cause__ is reason
    assert reservation.acquire().done
    reservation.release()
    with pytest.raises(RuntimeError):
        reservation.release()


def test_what_a_poisoned_request_never_held_is_not_given_back():
    reservation, start = ost.Reservation(), ost.UserEvent()
    refused = reservation.acquire(after=start)
    mine = reservation.acquire()
    start.poison()
    reservation.release(after=refused)  # after all else: still that of the request that its event comes after
    next_one = reservation.acquire()
    assert mine.done
    assert not next_one.done
    reservation.release()
    assert next_one.done


@pytest.mark.parametrize("poisoned", [False, True])
def test_release_after_an_event(poisoned):
    reservation, end = ost.Reservation(), ost.UserEvent()
    reservation.acquire()
    reservation.release(after=end)
    with pytest.raises(RuntimeError, match="promised"):
        reservation.release()
    with pytest.raises(RuntimeError, match="has its release already"):
        reservation.release(after=ost.UserEvent())
    waiting = reservation.acquire()
    assert not waiting.done
    end.poison() if poisoned else end.trigger()
    assert waiting.done


def test_a_release_before_its_grant_takes_nothing_from_others():
    reservation, cancelled = ost.Reservation(), ost.UserEvent()
    mine, yours, third = reservation.acquire(), reservation.acquire(), reservation.acquire()
    reservation.release(after=ost.merge(yours, cancelled))
    cancelled.poison()
    assert mine.done
    assert not yours.done
    reservation.release()
    assert yours.done  # and given back at once
    assert third.done
    reservation.release()


@pytest.mark.parametrize("wrong", [ost.UserEvent(), "yes", None, 1])
def test_exclusive_is_true_or_false(wrong):
    with pytest.raises(TypeError, match="True or False"):
        ost.Reservation().acquire(wrong)


def test_after_is_an_event():
    reservation = ost.Reservation()
    with pytest.raises(TypeError, match="an event or a run"):
        reservation.acquire(after=1)
    reservation.acquire()
    with pytest.raises(TypeError, match="an event or a run"):
        reservation.release(after=1)


def test_threads_exclude_each_other():
    reservation, inside, most = ost.Reservation(), 0, 0

    def work():
        nonlocal inside, most
        for _ in range(200):
            reservation.acquire().wait(60)
            inside += 1
            most = max(most, inside)
            inside -= 1
            reservation.release()

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert (inside, most) == (0, 1)


def test_a_long_queue():
    reservation = ost.Reservation()
    for _ in range(50_000):
        reservation.release(after=reservation.acquire())
    mine = reservation.acquire()
    requests = [reservation.acquire() for _ in range(50_000)]
    for request in requests:
        reservation.release(after=request)
    assert mine.done
    assert not requests[0].done
    reservation.release()
    assert requests[-1].done


def test_how_it_looks():
    reservation = ost.Reservation()
    reservation.acquire(), reservation.acquire()
    assert repr(reservation) == "<Reservation, 1 hold it and 1 wait>"


class Request:
    def __init__(self, exclusive, start, grant):
        self.exclusive, self.start, self.grant = exclusive, start, grant
        self.state = "waiting" if start is None else "deferred"
        self.end = ost.UserEvent()
        self.unreleased = True  # no release of it has been asked for
        self.given_back = False


class Reserving(RuleBasedStateMachine):
    """Any mixture of requests and releases, against a model in which every release knows its request."""

    def __init__(self):
        super().__init__()
        self.reservation = ost.Reservation()
        self.requests = []
        self.queue = []
        self.releases = []  # (request, event that the release comes after, whether that comes after the grant)

    def of(self, *states):
        return [request for request in self.requests if request.state in states]

    def grant(self):
        def fits(request):
            held = self.of("held")
            return not held or not (request.exclusive or held[0].exclusive)

        while self.queue and fits(self.queue[0]):
            request = self.queue.pop(0)
            request.state = "given back" if request.given_back else "held"

    def give_back(self, request):
        request.given_back = True
        if request.state == "held":
            request.state = "given back"
            self.grant()

    @rule(exclusive=st.booleans(), deferred=st.booleans())
    def acquire(self, exclusive, deferred):
        start = ost.UserEvent() if deferred else None
        request = Request(exclusive, start, self.reservation.acquire(exclusive, after=start))
        self.requests.append(request)
        if not deferred:
            self.queue.append(request)
            self.grant()

    @precondition(lambda self: self.of("deferred"))
    @rule(data=st.data(), poisoned=st.booleans())
    def start(self, data, poisoned):
        request = data.draw(st.sampled_from(self.of("deferred")))
        if poisoned:
            request.state = "refused"
            request.start.poison()
        else:
            request.state = "waiting"
            self.queue.append(request)
            request.start.trigger()
            self.grant()
        self.settle()

    @rule()
    def release_now(self):
        held = [request for request in self.of("held") if request.unreleased]
        if not held:
            with pytest.raises(RuntimeError):
                self.reservation.release()
            return
        held[0].unreleased = False
        self.reservation.release()
        self.give_back(held[0])
        self.settle()

    @rule()
    def release_after_anything(self):
        """An event that says nothing of the grant: the oldest request is meant."""
        end = ost.UserEvent()
        oldest = [request for request in self.requests if request.unreleased and request.state != "refused"]
        if not oldest:
            with pytest.raises(RuntimeError):
                self.reservation.release(after=end)
            return
        oldest[0].unreleased = False
        self.reservation.release(after=end)
        self.releases.append((oldest[0], end, False))

    @precondition(lambda self: any(request.unreleased for request in self.requests))
    @rule(data=st.data())
    def release_after_the_grant(self, data):
        request = data.draw(st.sampled_from([request for request in self.requests if request.unreleased]))
        request.unreleased = False
        end = ost.UserEvent()
        self.reservation.release(after=ost.merge(end, request.grant))
        self.releases.append((request, end, True))
        self.settle()

    @precondition(lambda self: any(not end.done for _, end, _ in self.releases))
    @rule(data=st.data(), poisoned=st.booleans())
    def end(self, data, poisoned):
        end = data.draw(st.sampled_from([end for _, end, _ in self.releases if not end.done]))
        end.poison() if poisoned else end.trigger()
        self.settle()

    def settle(self):
        """Let the releases happen whose events have."""
        changed = True
        while changed:
            changed = False
            for entry in self.releases:
                request, end, with_grant = entry
                poisoned = end.done and end.exception() is not None
                over = end.done
                if with_grant:
                    granted = request.state in ("held", "given back")
                    over = poisoned or request.state == "refused" or (end.done and granted)
                if over and not request.given_back:
                    self.give_back(request)
                    changed = True

    @invariant()
    def same_as_the_model(self):
        assert self.reservation._core.holders == len(self.of("held"))
        assert self.reservation._core.waiting == len(self.of("waiting"))
        for request in self.requests:
            assert request.grant.done == (request.state not in ("deferred", "waiting"))
            if request.grant.done:
                assert (request.grant.exception() is not None) == (request.state == "refused")


TestReserving = Reserving.TestCase
TestReserving.settings = settings(settings.default, max_examples=60, stateful_step_count=30)


def test_a_grant_is_known_through_another_reservation():
    first, second = ost.Reservation(), ost.Reservation()
    first.acquire()  # somebody else's
    both = second.acquire(after=first.acquire())
    done = ost.UserEvent()
    first.release(after=ost.merge(both, done))
    second.release(after=ost.merge(both, done))
    first.release()  # the other's, who holds it
    assert both.done
    done.trigger()
    first.acquire().wait(5)
    second.acquire().wait(5)


def test_events_that_meet_again_and_again_are_few():
    reservation = ost.Reservation()
    event = reservation.acquire()
    for _ in range(100):
        event = ost.merge(event, event)
    reservation.release(after=event)
    assert reservation.acquire().done
