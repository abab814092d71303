"""Whether several ranks do together what the step function does in one process, called in every step."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from ostinato.checking.comparison import first_difference
from ostinato.checking.copies import MemoryCopy, allocations, put_back
from ostinato.checking.left_out import LeftOut
from ostinato.checking.verify_function import CAUSES, call_step_function, watched_arrays
from ostinato.errors import ContractError, GraphError
from ostinato.graph.access import variables_of
from ostinato.graph.arrays import Array
from ostinato.graph.messages import Message
from ostinato.graph.ring import Ring
from ostinato.graph.task import name_of
from ostinato.graph.tracer import path_name, rebuild
from ostinato.ranks.array import DistributedArray, distributed_at
from ostinato.runtime.memory import at_address, root_of
from ostinato.runtime.outcome import wait_for_all
from ostinato.runtime.results import Verified
from ostinato.runtime.sequential import AsCaptured
from ostinato.text import counted

if TYPE_CHECKING:
    from ostinato.graph.capture import StepFunction
    from ostinato.graph.messages import Group
    from ostinato.runtime.engine import Engine


def verify_on_ranks(
    engine: Engine, group: Group, step_function: StepFunction | None, steps: int, params: Mapping[str, Any]
) -> Verified:
    """Call a function in every step, on copies of the whole arrays, then let all ranks run the program, and compare.

    All ranks do the same, so each finds every difference. Afterwards arrays hold what they held before.
    """
    with group.part():
        return _verify(engine, group, step_function, steps, params)


def _verify(
    engine: Engine, group: Group, step_function: StepFunction | None, steps: int, params: Mapping[str, Any]
) -> Verified:
    if step_function is None:
        raise GraphError(
            "verify on several ranks calls the whole step in each process, so it needs the function: make the program "
            "with ostinato.compile(function, ...), or verify it on one rank"
        )
    if engine.binding is not None:
        raise GraphError(
            "verify on several ranks calls the function on the arrays that it was given: call it before rebind"
        )
    ops = step_function.graph.ops
    for op in ops:
        if isinstance(op.body, Message):
            raise GraphError(f"verify on several ranks cannot call {op.name!r} at {op.call_site}: it sends or receives")
        if LeftOut().has(op):
            raise GraphError(
                f"verify on several ranks cannot leave out {op.name!r} at {op.call_site}, which is declared "
                "pure=False; verify the program on one rank"
            )
    wait_for_all(engine.in_flight(), False)
    title, spread = name_of(step_function.function), dict(_distributed_in(step_function))
    plain = [
        array for op in ops for each in op.operands for array in each.arrays if distributed_at(root_of(array)) is None
    ]
    plain += [each.array for each in watched_arrays(step_function) if distributed_at(root_of(each.array)) is None]
    originals = allocations((), AsCaptured(), besides=plain)
    before = MemoryCopy(originals)
    wholes = {array: _whole(array) for array in spread}
    owned = [(view, view.copy()) for array in spread for _, view in array.local]
    with put_back(originals, before):
        called = call_step_function(step_function, steps, params, _OnWholes(wholes), lambda op: False)
        wanted = MemoryCopy(originals)
    first_step = engine.step
    with put_back(originals, before):
        try:
            engine.reset(0)
            run = engine.submit(steps, None, 0, True, params, False, waits=True)
            done = run if type(run) is int else engine.deliver(run)
            got, results = MemoryCopy(originals), {array: _whole(array) for array in spread}
        finally:
            for view, held in owned:
                view[...] = held
            engine.reset(first_step)
    difference = next(_differences(title, spread, wholes, results, plain, wanted, got), "")
    if not difference and called != done:
        difference = f"the program ends after {counted(done, 'step')}, but {title}() called eagerly after {called}"
    _raise_on_all(group, difference)
    return Verified(done, len(ops), function=title)


def _distributed_in(step_function: StepFunction) -> Iterator[tuple[DistributedArray, str]]:
    """Yield the distributed arrays that a function is given or closes over, with their names, as on all ranks."""
    found: list[tuple[DistributedArray, str]] = []

    def note(value: Any, path: tuple[object, ...]) -> Any:
        for each in value.values if isinstance(value, Ring) else (value,):
            if isinstance(each, DistributedArray):
                found.append((each, path_name(path)))
        return value

    named = [*zip(step_function.names, step_function.args, strict=True), *step_function.kwargs.items()]
    function = step_function.function
    code = getattr(function, "__code__", None)
    if code is not None:
        named += [(name, now()) for name, now in variables_of(function, code.co_names)]
    for name, value in named:
        rebuild(value, (name,), note, {})
    seen: set[int] = set()
    for array, name in found:
        if id(array) not in seen:
            seen.add(id(array))
            yield array, name


def _whole(array: DistributedArray) -> Array:
    found = array.get()
    assert found is not None
    return found


class _OnWholes(AsCaptured):
    """Copies of whole arrays in place of what a rank has of them."""

    def __init__(self, wholes: Mapping[DistributedArray, Array]) -> None:
        self._wholes = wholes

    def substitute(self, array: Array) -> Array:
        root = root_of(array)
        spread = distributed_at(root)
        whole = None if spread is None else self._wholes.get(spread)
        if whole is None or not array.size:
            return array
        return at_address(whole.ctypes.data + array.ctypes.data - root.ctypes.data, array, whole)


def _differences(
    title: str,
    spread: Mapping[DistributedArray, str],
    wanted_of: Mapping[DistributedArray, Array],
    got_of: Mapping[DistributedArray, Array],
    plain: list[Array],
    wanted_in: MemoryCopy,
    got_in: MemoryCopy,
) -> Iterator[str]:
    told = f"the program on several ranks does not do what {title}() does when it is called in every step: they differ"
    for array, name in spread.items():
        index = first_difference(wanted_of[array], got_of[array])
        if index is not None:
            yield (
                f"{told} in the distributed array {name!r}: at index {index} the function gives "
                f"{wanted_of[array][index]!r}, the program {got_of[array][index]!r}. {CAUSES}"
            )
    for each in plain:
        if each.dtype.hasobject:
            continue
        wanted, got = wanted_in.at(each), got_in.at(each)
        index = first_difference(wanted, got)
        if index is not None:
            yield (
                f"{told} in an array that every rank has, of shape {each.shape}: at index {index} the function gives "
                f"{wanted[index]!r}, the program {got[index]!r}. {CAUSES}"
            )


def _raise_on_all(group: Group, difference: str) -> None:
    """Raise if any rank has found a difference; all ranks call it."""
    found = DistributedArray(group, group.size, np.uint8, None, None)
    for _, view in found.local:
        view[...] = bool(difference)
    ranks = np.flatnonzero(_whole(found)).tolist()
    if difference:
        raise ContractError(difference)
    if ranks:
        raise ContractError(f"rank {ranks[0]} found that the program does not do what the function does; see there")
