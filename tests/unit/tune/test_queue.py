"""The queue: which candidate is next, how many are taken, and in which order they are reported."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

import ostinato as ost
from ostinato.tune.searching.queue import Queue, offers


def candidates(*numbers: int) -> list[ost.Candidate]:
    return [ost.Candidate.call("json:dumps", {"obj": number}) for number in numbers]


def taken(queue: Queue) -> list[int]:
    found = []
    while (trial := queue.next()) is not None:
        found.append(trial.candidate.config["obj"])
    return found


def order(queue: Queue, among: list[ost.Candidate]) -> list[int]:
    number = {candidate.id: candidate.config["obj"] for candidate in among}
    return [number[name] for name in queue.order]


def test_each_is_taken_once_and_reported_as_often_as_offered() -> None:
    listed = candidates(1, 2, 1, 3, 2)
    queue = Queue(offers(listed, None), None, None)
    assert taken(queue) == [1, 2, 3]
    assert not queue.open
    assert order(queue, listed) == [1, 2, 1, 3, 2]


def test_the_default_comes_first_and_is_reported_in_its_place() -> None:
    listed = candidates(1, 2, 3)
    queue = Queue(offers(listed, listed[2]), listed[2], None)
    assert taken(queue) == [3, 1, 2]
    assert order(queue, listed) == [1, 2, 3]


def test_a_default_that_a_generator_never_offers_is_reported_first() -> None:
    listed = candidates(1, 2)
    default = candidates(7)[0]
    queue = Queue(offers((each for each in listed), default), default, None)
    assert taken(queue) == [7, 1, 2]
    assert order(queue, [*listed, default]) == [7, 1, 2]


def test_no_more_are_taken_than_may_be_and_the_rest_of_a_list_is_known() -> None:
    listed = candidates(1, 2, 3, 4)
    queue = Queue(offers(listed, None), None, 2)
    assert taken(queue) == [1, 2]
    assert queue.full
    assert [trial.candidate.config["obj"] for trial in queue.rest()] == [3, 4]
    assert order(queue, listed) == [1, 2, 3, 4]


def test_a_generator_is_not_drained() -> None:
    asked = []

    def endless() -> Iterator[ost.Candidate]:
        number = 0
        while True:
            asked.append(number)
            yield candidates(number)[0]
            number += 1

    queue = Queue(offers(endless(), None), None, 3)
    assert taken(queue) == [0, 1, 2]
    assert list(queue.rest()) == []
    assert len(asked) <= 3


@pytest.mark.parametrize("wrong", ["abc", 7, None, candidates(1)[0]])
def test_what_offers_no_candidates_is_refused(wrong: object) -> None:
    with pytest.raises(TypeError):
        offers(wrong, None)  # type: ignore[arg-type]


def test_what_is_no_candidate_is_refused_where_it_comes() -> None:
    with pytest.raises(TypeError, match="got 7"):
        offers([*candidates(1), 7], None)  # type: ignore[list-item]
    queue = Queue(offers(iter([*candidates(1), 7]), None), None, None)  # type: ignore[list-item]
    queue.next()
    with pytest.raises(TypeError, match="got 7"):
        queue.next()


def test_a_default_is_one_of_the_candidates() -> None:
    with pytest.raises(ValueError, match="must be one of the candidates"):
        offers(candidates(1, 2), candidates(3)[0])


@pytest.mark.parametrize("what", [None, "json:dumps", ("./a",)])
def test_what_is_no_candidate_is_refused_when_it_is_offered(what: object) -> None:
    queue = Queue(offers(iter([*candidates(1), what, *candidates(2)]), None), None, None)  # type: ignore[list-item]
    assert queue.next() is not None
    with pytest.raises(TypeError, match="candidates must be"):
        queue.next()


class Strange:
    """A strategy that offers what is none."""

    def ask(self) -> ost.Candidate:
        return "json:dumps"  # type: ignore[return-value]

    def tell(self, result: ost.Result) -> None:
        """Nothing to learn."""


def test_what_a_strategy_offers_is_looked_at_too() -> None:
    with pytest.raises(TypeError, match="candidates must be"):
        Queue(Strange(), None, None).next()


def test_nothing_is_taken_after_the_end() -> None:
    first, second = candidates(1, 2)
    for default in (None, second):
        queue = Queue(offers((each for each in (first, second)), default), default, None)
        assert list(queue.rest()) == []
        assert queue.next() is None
