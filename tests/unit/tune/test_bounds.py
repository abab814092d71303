"""The time to beat, against what it is by definition: the least of all bounds, each carried by itself."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ostinato.tune.racing.race import UNEVEN, Bounds, Speeds

DEVICES = ("cpu:0", "cpu:1", "cpu:2")
PRELUDE = [("measured", "cpu:0", 20.0), *(("add_reference", device, [10.0]) for device in DEVICES[:2])]

times = st.integers(10, 20).map(float)
devices = st.sampled_from(DEVICES)
steps = st.lists(
    st.one_of(
        st.tuples(st.just("measured"), devices, times),
        st.tuples(st.just("add_reference"), devices, st.lists(times, min_size=1, max_size=3)),
        st.tuples(st.just("forget"), st.integers(0, 9), st.none()),
    ),
    max_size=20,
)


def carried(speeds, bound, measured, place):
    if measured == place:
        return bound
    here, there = speeds.scale(place), speeds.scale(measured)
    if here is None or there is None:
        return math.inf
    return bound * here[1] / there[0] * (UNEVEN if measured.device != place.device else 1.0)


@given(steps)
def test_it_is_the_least_of_all_bounds_each_carried_by_itself(steps):
    speeds = Speeds()
    bounds = Bounds(speeds)
    known, references = {}, []
    places = {speeds.place(device) for device in DEVICES}
    for number, (what, where, value) in enumerate([*PRELUDE, *steps]):
        if what == "measured":
            known[number] = speeds.place(where), value
            bounds.measured(number, *known[number])
        elif what == "add_reference":
            speeds.add_reference(where, value)
            bounds.add_reference(where)
            references.append((where, value))
            places.add(speeds.place(where))
        elif known:
            entry = list(known)[where % len(known)]
            bounds.forget(entry, known.pop(entry)[0])
        afresh = Speeds()
        for device, samples in references:
            afresh.add_reference(device, samples)
        for place in places:
            least = min((carried(afresh, bound, there, place) for there, bound in known.values()), default=math.inf)
            assert bounds.at(place) == pytest.approx(least)
