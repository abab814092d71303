"""The life of a candidate: every transition of the table, those that are refused, and the order of what waits."""

import itertools
import random

import pytest

import ostinato as ost
from ostinato.tune.trial import TRANSITIONS, Event, IllegalTransition, State, Trial, Trials

WAITING = (State.UNBUILT, State.READY, State.UNCHECKED, State.DISTURBED)
# Events that lead to each state, from the one in which a trial begins.
WAY_TO = {
    State.OFFERED: (),
    State.UNBUILT: (Event.NEED_BUILD,),
    State.BUILDING: (Event.NEED_BUILD, Event.START),
    State.READY: (Event.ADMIT,),
    State.MEASURING: (Event.ADMIT, Event.START),
    State.UNCHECKED: (Event.ADMIT, Event.START, Event.NEED_CHECK),
    State.CHECKING: (Event.ADMIT, Event.START, Event.NEED_CHECK, Event.START),
    State.DISTURBED: (Event.ADMIT, Event.START, Event.DISTURB),
    State.DONE: (Event.END,),
}


def trial_in(trials: Trials, state: State) -> Trial:
    trial = Trial(ost.Candidate.command(["true"]))
    for event in WAY_TO[state]:
        trials.move(trial, event)
    assert trial.state is state
    return trial


@pytest.mark.parametrize(("state", "event"), list(itertools.product(State, Event)))
def test_a_trial_moves_as_the_table_says_and_no_other_way(state: State, event: Event) -> None:
    trials = Trials()
    trial = trial_in(trials, state)
    following = TRANSITIONS.get((state, event))
    if following is None:
        with pytest.raises(IllegalTransition, match=f"is {state.name.lower()} must not get the event {event.name}"):
            trials.move(trial, event)
    else:
        trials.move(trial, event)
    now = following or state
    assert trial.state is now
    assert trials.waiting(*WAITING) == ([trial] if now in WAITING else [])
    assert [trials.count(each) for each in WAITING] == [each is now for each in WAITING]


def test_what_must_not_happen_to_a_trial() -> None:
    """What the search relies on; written down once more so that the table cannot be changed by mistake."""
    for state in State:
        assert ((state, Event.START) in TRANSITIONS) == (state in (State.UNBUILT, State.READY, State.UNCHECKED))
        busy = state in (State.BUILDING, State.MEASURING, State.CHECKING)
        assert ((state, Event.RETURN) in TRANSITIONS) == busy
    assert all(following is not State.OFFERED for following in TRANSITIONS.values())
    assert (State.UNBUILT, Event.END) not in TRANSITIONS  # a result without a build
    assert (State.READY, Event.END) not in TRANSITIONS  # a result that nothing measured
    assert TRANSITIONS[State.DISTURBED, Event.ADMIT] is State.READY


def test_from_every_state_a_search_that_stops_ends_every_trial() -> None:
    for state in set(State) - {State.DONE}:
        assert TRANSITIONS[state, Event.CANCEL] is State.DONE


def test_a_random_walk_keeps_what_waits_in_order() -> None:
    rng = random.Random(7)
    trials, model = Trials(), {state: list[Trial]() for state in WAITING}
    alive = [Trial(ost.Candidate.command(["true"])) for _ in range(20)]
    reached = set()
    for _ in range(4000):
        trial = rng.choice(alive)
        event = rng.choice([event for state, event in TRANSITIONS if state is trial.state])
        if event is Event.START and rng.random() < 0.5:
            trial = model[trial.state][0]
            assert trials.first(trial.state) is trial
        if trial.state in WAITING:
            model[trial.state].remove(trial)
        before = trial.state
        if event is Event.START and trials.first(before) is trial:
            assert trials.start(before) is trial
        else:
            trials.move(trial, event)
        assert trial.state is TRANSITIONS[before, event]
        reached.add((before, event))
        if trial.state in WAITING:
            model[trial.state].insert(0 if event is Event.RETURN else len(model[trial.state]), trial)
        assert all(trials.waiting(state) == model[state] for state in WAITING)
        if trial.state is State.DONE and rng.random() < 0.3:  # another comes from the strategy
            alive[alive.index(trial)] = Trial(trial.candidate)
    assert reached == set(TRANSITIONS)
