"""No two hold a lease at once: sets that overlap, threads, processes, and processes that are killed."""

from __future__ import annotations

import fcntl
import os
import threading
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import quote

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from leases import Other, contend, lease_of
from ostinato.tune.leases.lease import Lease
from ostinato.tune.leases.lock_file import holders

CORES = [f"core-{number}" for number in range(4)]
HERE = "here"

sets_of_cores = st.lists(st.sampled_from(CORES), min_size=1, unique=True)


class Leases(RuleBasedStateMachine):
    """Three processes against a model: what is free can be taken, and nothing else."""

    directory: Path
    others: dict[str, Other]

    def __init__(self) -> None:
        super().__init__()
        self.held: dict[tuple[str, ...], str] = {}
        self.mine: dict[tuple[str, ...], Lease] = {}

    def pid(self, actor: str) -> int:
        return os.getpid() if actor == HERE else self.others[actor].pid

    def holder_of(self, core: str) -> int | None:
        return next((self.pid(actor) for cores, actor in self.held.items() if core in cores), None)

    @initialize()
    def start(self) -> None:
        for name in ("first", "second"):
            if name not in self.others:
                self.others[name] = Other()

    @rule(actor=st.sampled_from([HERE, "first", "second"]), cores=sets_of_cores)
    def attempt(self, actor: str, cores: list[str]) -> None:
        taken = [(core, self.holder_of(core)) for core in sorted(cores) if self.holder_of(core) is not None]
        if actor == HERE:
            lease = lease_of(cores)
            holder = lease.try_acquire()
            answer = None if holder is None else (holder.identity, holder.pid)
            if holder is None:
                self.mine[tuple(cores)] = lease
        else:
            self.start()
            found = self.others[actor]("attempt", cores)
            answer = None if found is None else tuple(found)
        assert answer == (taken[0] if taken else None)
        if not taken:
            self.held[tuple(cores)] = actor

    @precondition(lambda self: self.held)
    @rule(data=st.data())
    def release(self, data: st.DataObject) -> None:
        cores = data.draw(st.sampled_from(sorted(self.held)))
        actor = self.held.pop(cores)
        if actor == HERE:
            self.mine.pop(cores).release()
        else:
            self.others[actor]("release", cores)

    @precondition(lambda self: set(self.held.values()) - {HERE})
    @rule(data=st.data())
    def kill(self, data: st.DataObject) -> None:
        actor = data.draw(st.sampled_from(sorted(set(self.held.values()) - {HERE})))
        self.others.pop(actor).kill()
        self.held = {cores: other for cores, other in self.held.items() if other != actor}

    @invariant()
    def everybody_sees_who_holds_what(self) -> None:
        expected = {core: self.holder_of(core) for core in CORES if self.holder_of(core) is not None}
        assert {holder.identity: holder.pid for holder in holders()} == expected
        # The same asked of the kernel, past everything that is tested.
        for path in self.directory.glob("*.lock"):
            with path.open() as file:
                try:
                    fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    free = True
                except BlockingIOError:
                    free = False
            assert free == (path.stem not in expected)

    def teardown(self) -> None:
        for lease in self.mine.values():
            lease.release()
        for actor in set(self.held.values()) - {HERE}:
            self.others[actor]("release_all")


@pytest.fixture
def others() -> Iterator[dict[str, Other]]:
    found: dict[str, Other] = {}
    yield found
    for other in found.values():
        other.close()


def test_what_is_free_can_be_taken_and_nothing_else(others: dict[str, Other]) -> None:
    machine = type("Machine", (Leases,), {"directory": Path(os.environ["OSTINATO_LEASE_DIR"]), "others": others})
    run_state_machine_as_test(machine, settings=settings(max_examples=12, stateful_step_count=20))


@pytest.mark.parametrize("seed", range(3))
def test_threads_and_processes_that_contend(seed: int, tmp_path: Path) -> None:
    """The witness would see two in the same core; a deadlock would be seen by the time limit of `acquire`."""
    witness = tmp_path / "witness"
    witness.mkdir()
    broken: list[str] = []

    def run(number: int) -> None:
        try:
            broken.extend(contend(str(witness), 10 * seed + number, 25))
        except BaseException as error:
            broken.append(repr(error))
            raise

    threads = [threading.Thread(target=run, args=(number,)) for number in range(3)]
    with Other() as first, Other() as second:
        for number, other in enumerate((first, second)):
            other.begin("contend", str(witness), 10 * seed + 5 + number, 25)
        for thread in threads:
            thread.start()
        broken += first.end() + second.end()
        for thread in threads:
            thread.join()
    assert not broken
    assert not list(witness.iterdir())
    assert holders() == []


def test_neighbours_in_a_circle_do_not_deadlock() -> None:
    """As philosophers at dinner: each needs what two others need, and asks for it in another order."""
    count = 4
    dined = []

    def dine(seat: int) -> None:
        for _ in range(10):
            lease = lease_of([f"fork-{seat}", f"fork-{(seat + 1) % count}"])
            lease.acquire(timeout=60)
            lease.release()
        dined.append(seat)

    threads = [threading.Thread(target=dine, args=(seat,)) for seat in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(dined) == list(range(count))


def test_all_or_nothing() -> None:
    with lease_of(["b"]):
        lease = lease_of(["c", "a", "b"])
        holder = lease.try_acquire()
        assert holder is not None
        assert holder.identity == "b"
        assert lease.files == ()
        assert [held.identity for held in holders()] == ["b"]
    assert lease.try_acquire() is None
    assert len(lease.files) == 3
    lease.release()


def test_identities_of_any_spelling_are_files_of_their_own() -> None:
    names = ["a", "A", "a/b", "a%2Fb", "..", ".", "", "é", "a b", "a\nb", "*", quote("*", safe="")]
    leases = [lease_of([name]) for name in names]
    assert [lease.try_acquire() for lease in leases] == [None] * len(names)
    assert [holder.identity for holder in holders()] == sorted(names, key=lambda name: quote(name, safe="") + ".lock")
    for lease in leases:
        lease.release()
