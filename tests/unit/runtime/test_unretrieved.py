"""The runs whose failure nobody may have retrieved."""

from __future__ import annotations

import ostinato as ost
from ostinato.runtime.run import Unretrieved


def explain(core):
    return core  # no TaskError: it may still be retrieved by way of another run


class Core:
    """The core's side of a run."""

    def __init__(self, look=lambda: None):
        self.look = look
        self.unretrieved = True

    def retrieve(self):
        self.unretrieved = False

    @property
    def done(self):
        self.look()
        return True


def test_runs_that_are_dropped_while_the_list_is_pruned_are_kept():
    watched, late = Unretrieved(), []

    def drop_others():  # as another thread does, or the end of an array in this one
        if not late:
            late.extend(Core() for _ in range(1000))
            for core in late:
                watched.drop(core, explain)

    cores = [Core(drop_others) for _ in range(1000)]
    for core in cores:
        watched.drop(core, explain)
    assert late
    failed = watched.take(explain)
    assert set(failed) == {*cores, *late}
    assert len(failed) == 2000
    assert not watched.take(explain)


def test_of_many_failures_the_least_is_kept_and_the_others_are_counted():
    watched = Unretrieved()
    for step in reversed(range(10_000)):
        watched.drop(Core(), lambda _, step=step: ost.TaskError(f"failed in step {step}", None, step))
    assert len(watched._dropped) < 1000
    failed = watched.take(lambda _: ost.TaskError("failed late", None, 10_000))
    least = min(failed, key=lambda error: error.step)
    noted = int("".join(filter(str.isdigit, failed[0].__notes__[0])))
    assert noted + len(failed) == 10_000
    assert least.step < 1000
    assert not watched.take(lambda _: None)


def test_runs_that_nobody_need_be_told_of_are_forgotten():
    watched = Unretrieved()
    for _ in range(10_000):
        core = Core()
        core.unretrieved = False
        watched.drop(core, explain)
    assert len(watched._dropped) < 1000
