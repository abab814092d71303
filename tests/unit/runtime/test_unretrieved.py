"""The runs whose failure nobody may have retrieved."""

from __future__ import annotations

from ostinato.runtime.run import Unretrieved


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
                watched.drop(core)

    cores = [Core(drop_others) for _ in range(1000)]
    for core in cores:
        watched.drop(core)
    assert late
    failed = watched.take(lambda core: core)
    assert len(failed) == 2000
    assert set(failed) == {*cores, *late}
    assert not watched.take(lambda core: core)


def test_runs_that_nobody_need_be_told_of_are_forgotten():
    watched = Unretrieved()
    for _ in range(10_000):
        core = Core()
        core.unretrieved = False
        watched.drop(core)
    assert len(watched._dropped) < 1000
