"""Whatever signatures a task and its variant have: the variant gets all that the task got, each in its place."""

from inspect import Parameter, Signature

import numpy as np
from hypothesis import assume, given, settings
from hypothesis import strategies as st

import ostinato as ost
from ostinato.runtime.sequential import AsCaptured, run_op

ACCESS = (Parameter.empty, "ost.Read", "ost.Write", "ost.ReadWrite")
CONFIGS = ({}, {"x": 1000}, {"x": 1000, "y": 1001, "note": "n"})
OWN_DEFAULT = 200


def chance(draw, one_in):
    return draw(st.integers(1, one_in)) == 1


@st.composite
def signatures(draw, names, default):
    """A signature; all its defaults are the same number."""
    kinds = st.sampled_from([Parameter.POSITIONAL_ONLY, Parameter.POSITIONAL_OR_KEYWORD, Parameter.KEYWORD_ONLY])
    found, has_default = [], False
    for kind in sorted(draw(st.lists(kinds, max_size=4))):
        has_default = chance(draw, 3) or (has_default and kind is not Parameter.KEYWORD_ONLY)
        found.append((kind, default if has_default else Parameter.empty))
    if chance(draw, 4):
        found.append((Parameter.VAR_POSITIONAL, Parameter.empty))
    if chance(draw, 4):
        found.append((Parameter.VAR_KEYWORD, Parameter.empty))
    names = draw(st.permutations(names))
    access = st.sampled_from(ACCESS)
    parameters = [
        Parameter(name, kind, default=value, annotation=draw(access))
        for name, (kind, value) in zip(names, sorted(found, key=lambda each: each[0]), strict=False)
    ]
    return Signature(parameters)


@st.composite
def like(draw, signature):
    """A signature that is much like another one."""
    parameters = [
        each.replace(default=OWN_DEFAULT if each.default is not Parameter.empty else each.default)
        for each in signature.parameters.values()
        if not chance(draw, 10)
    ]
    kind = draw(st.sampled_from([None, None, Parameter.POSITIONAL_OR_KEYWORD, Parameter.KEYWORD_ONLY]))
    if kind is not None:
        parameters.append(Parameter("x", kind, default=draw(st.sampled_from([Parameter.empty, OWN_DEFAULT]))))
    parameters.sort(key=lambda each: each.kind)
    has_default = [
        each.default is not Parameter.empty
        for each in parameters
        if each.kind in (Parameter.POSITIONAL_ONLY, Parameter.POSITIONAL_OR_KEYWORD)
    ]
    assume(has_default == sorted(has_default))  # no parameter without a default comes after one that has one
    return Signature(parameters)


@st.composite
def calls(draw, signature):
    """Positional and keyword arguments of a call."""
    numbers = iter(range(1, 100))
    args, kwargs, by_place = [], {}, True

    def value(each):
        return next(numbers) if each.annotation is Parameter.empty else np.zeros(1)

    for each in signature.parameters.values():
        if each.kind is Parameter.VAR_POSITIONAL:
            args += [value(each) for _ in range(draw(st.integers(0, 2)) if by_place else 0)]
        elif each.kind is Parameter.VAR_KEYWORD:
            kwargs |= {name: value(each) for name in sorted(draw(st.sets(st.sampled_from("pqx"))))}
        elif each.default is not Parameter.empty and each.annotation is Parameter.empty and chance(draw, 2):
            by_place = False
        elif each.kind is Parameter.POSITIONAL_ONLY or (
            by_place and each.kind is Parameter.POSITIONAL_OR_KEYWORD and chance(draw, 2)
        ):
            assume(by_place)
            args.append(value(each))
        else:
            by_place = False
            kwargs[each.name] = value(each)
    return args, kwargs


def make(name, signature, seen):
    """Make a function that notes what it gets, by name of its parameter."""
    space = {"ost": ost, "seen": seen}
    exec(f"def {name}{signature}:\n    seen.append(dict(locals()))", space)
    return space[name]


def received(got, signature):
    """What a function got: (value, annotation, name of the parameter or of the keyword, if any that counts) each."""
    found = []
    for name, each in signature.parameters.items():
        if each.kind is Parameter.VAR_POSITIONAL:
            found += [(identity(value), each.annotation, "") for value in got[name]]
        elif each.kind is Parameter.VAR_KEYWORD:
            found += [(identity(value), each.annotation, key) for key, value in got[name].items()]
        else:
            counts = each.kind is not Parameter.POSITIONAL_ONLY
            found.append((identity(got[name]), each.annotation, name if counts else ""))
    return found


def identity(value):
    return value.ctypes.data if isinstance(value, np.ndarray) else value


@settings(max_examples=200)
@given(data=st.data())
def test_variants_get_what_the_task_got(data):
    of_task = data.draw(signatures("abcdef", 100), "task")
    own = data.draw(st.one_of(like(of_task), like(of_task), signatures("abxyef", OWN_DEFAULT)), "variant")
    config = data.draw(st.sampled_from(CONFIGS), "config")
    seen = []
    task = ost.task(make("task", of_task, seen))
    try:
        task.variant(config=config)(make("variant", own, seen))
    except (TypeError, ValueError):
        return
    args, kwargs = data.draw(calls(of_task), "call")
    with ost.capture():
        op = task(*args, **kwargs)
    run_op(op, 0, AsCaptured(), {})
    op.body = task.variants[0].body(op.body)
    if op.body is None:
        flexible = {Parameter.VAR_POSITIONAL, Parameter.VAR_KEYWORD}
        assert flexible & {each.kind for each in of_task.parameters.values()}
        return
    run_op(op, 0, AsCaptured(), {})
    wanted, got = received(seen[0], of_task), received(seen[1], own)
    own_values = (OWN_DEFAULT, *config.values())
    taken = [each for each in got if each[0] not in own_values]
    assert sorted((v, str(a)) for v, a, _ in taken) == sorted((v, str(a)) for v, a, _ in wanted)
    names = {name: value for value, _, name in wanted if name}
    assert all(names.get(name, value) == value for value, _, name in got)
