"""The contract on variants: other implementations of a task, declared beside it."""

from __future__ import annotations

import ctypes

import numpy as np
import pytest

import ostinato as ost
from naming import stable_repr
from native import load


def fresh():
    """A task that nobody declared a variant of."""

    @ost.task
    def relax(src: ost.Read, dst: ost.Write, omega=0.5):
        dst[...] = src * omega

    return relax


def load_address(name):
    library = load("contract/variants.c")
    return ctypes.cast(getattr(library, name), ctypes.c_void_p).value


def names(task):
    return [variant.name for variant in task.variants]


# Declaring


def test_a_function_is_declared_and_stays_what_it_is():
    relax = fresh()

    @relax.variant()
    def relax_fast(src: ost.Read, dst: ost.Write, omega):
        np.multiply(src, omega, out=dst)

    a, b = np.ones(3), np.zeros(3)
    relax_fast(a, b, 2.0)
    assert b.tolist() == [2, 2, 2]
    assert names(relax) == ["relax_fast"]
    with ost.capture() as graph:  # it is a plain function: nothing is recorded
        relax_fast(np.ones(3), np.zeros(3), 2.0)
        assert len(graph) == 0
        relax(np.ones(3), np.zeros(3), 2.0)


def test_declared_without_parentheses():
    relax = fresh()

    @relax.variant
    def relax_fast(src: ost.Read, dst: ost.Write, omega):
        np.multiply(src, omega, out=dst)

    assert callable(relax_fast)
    assert names(relax) == ["relax_fast"]


def test_declared_by_a_call():
    relax = fresh()

    def other(src: ost.Read, dst: ost.Write, omega):
        np.multiply(src, omega, out=dst)

    assert relax.variant()(other) is other
    assert names(relax) == ["other"]


def test_a_name_of_its_own():
    relax = fresh()

    @relax.variant(name="quick")
    def relax_fast(src: ost.Read, dst: ost.Write, omega):
        np.multiply(src, omega, out=dst)

    assert names(relax) == ["quick"]


def test_one_function_for_several_configurations():
    relax = fresh()

    @relax.variant(config={"block": 8})
    @relax.variant(config={"block": 16})
    def tiled(src: ost.Read, dst: ost.Write, omega, block):
        np.multiply(src, omega, out=dst)

    for block in (32, 64):
        relax.variant(config={"block": block})(tiled)
    assert [dict(variant.config) for variant in relax.variants] == [{"block": n} for n in (16, 8, 32, 64)]
    assert names(relax) == ["tiled"] * 4


def test_a_task_may_be_a_variant():
    relax = fresh()

    @relax.variant()
    @ost.task
    def other(src: ost.Read, dst: ost.Write, omega):
        np.multiply(src, omega, out=dst)

    assert names(relax) == ["other"]
    a, b = np.ones(3), np.zeros(3)
    with ost.capture() as graph:
        other(a, b, 2.0)
    assert len(graph) == 1


def test_parameters_are_matched_by_position():
    relax = fresh()

    @relax.variant()
    def other(before: ost.Read, after: ost.Write, factor):
        np.multiply(before, factor, out=after)

    assert names(relax) == ["other"]


def test_methods_of_instances_and_callables():
    class Scaling:
        def __call__(self, src: ost.Read, dst: ost.Write, omega):
            np.multiply(src, omega, out=dst)

        def method(self, src: ost.Read, dst: ost.Write, omega):
            np.multiply(src, omega, out=dst)

    relax = fresh()
    relax.variant(name="instance")(Scaling())
    relax.variant()(Scaling().method)
    assert names(relax) == ["instance", "method"]


def test_a_native_variant():
    relax = fresh()
    fast = ost.native(load_address("scale"), (ost.Read, ost.Write, float), name="fast")
    assert relax.variant()(fast) is fast
    assert names(relax) == ["fast"]


def test_a_variant_of_a_native_task():
    scale = ost.native(load_address("scale"), (ost.Read, ost.Write, float), name="scale")

    @scale.variant()
    def in_python(src: ost.Read, dst: ost.Write, omega):
        np.multiply(src, omega, out=dst)

    fast = ost.native(load_address("scale"), (ost.Read, ost.Write, float), name="fast")
    scale.variant(on="cpu", config={"flags": "-O3"})(fast)
    assert names(scale) == ["in_python", "fast"]


def test_a_kernel_as_variant_and_as_task():
    pytest.importorskip("numba")
    relax = fresh()

    @relax.variant(on="cpu")
    @ost.kernel
    def looped(src: ost.Read, dst: ost.Write, omega):
        for i in range(src.size):
            dst[i] = src[i] * omega

    assert names(relax) == ["looped"]

    @looped.variant()
    def vector(src: ost.Read, dst: ost.Write, omega):
        np.multiply(src, omega, out=dst)

    assert names(looped) == ["vector"]
    assert names(relax) == ["looped"]


@pytest.mark.parametrize("kind", [None, "cpu", "cuda", "opencl"])
def test_kinds_of_processors(kind):
    relax = fresh()

    @relax.variant(on=kind)
    def other(src: ost.Read, dst: ost.Write, omega):
        np.multiply(src, omega, out=dst)

    assert [variant.on for variant in relax.variants] == [kind]


def test_a_fresh_task_has_no_variants():
    assert tuple(fresh().variants) == ()


def test_variants_are_those_of_their_task():
    one, other = fresh(), fresh()

    @one.variant()
    def fast(src: ost.Read, dst: ost.Write, omega):
        np.multiply(src, omega, out=dst)

    assert names(other) == []


# Declared wrongly


def a_wrong_number(src: ost.Read, omega):
    """One array is missing."""


def one_array_more(src: ost.Read, dst: ost.Write, extra: ost.Read, omega):
    """There is one too many."""


def read_for_write(src: ost.Read, dst: ost.Read, omega):
    """It promises too little."""


def readwrite_for_write(src: ost.Read, dst: ost.ReadWrite, omega):
    """It says that it reads what need not hold anything."""


def write_for_read(src: ost.Write, dst: ost.Write, omega):
    """It writes what others read."""


def swapped(dst: ost.Write, src: ost.Read, omega):
    """They are in another order."""


def unannotated(src, dst, omega):
    """It says nothing."""


def array_for_scalar(src: ost.Read, dst: ost.Write, omega: ost.Read):
    """A scalar is no array."""


@pytest.mark.parametrize(
    "function",
    [
        a_wrong_number,
        one_array_more,
        read_for_write,
        readwrite_for_write,
        write_for_read,
        swapped,
        unannotated,
        array_for_scalar,
    ],
)
def test_other_accesses_are_refused_at_declaration(function):
    relax = fresh()
    with pytest.raises(TypeError, match=function.__name__):
        relax.variant()(function)
    with pytest.raises(TypeError):
        relax.variant()(ost.task(function))
    assert names(relax) == []


def test_the_message_names_the_parameter_and_both_accesses():
    with pytest.raises(TypeError, match=r"(?s)dst.*Read") as caught:
        fresh().variant()(read_for_write)
    assert "Write" in str(caught.value)


@pytest.mark.parametrize(
    "access",
    [
        (ost.Read, ost.Write),
        (ost.Read, ost.Read, float),
        (ost.Read, ost.ReadWrite, float),
        (ost.Write, ost.Read, float),
        (ost.Read, ost.Write, ost.Read),
    ],
)
def test_other_accesses_of_native_tasks_are_refused(access):
    relax = fresh()
    native = ost.native(load_address("scale"), access, name="fast")
    with pytest.raises(TypeError, match=r"fast|relax"):
        relax.variant()(native)
    assert names(relax) == []


def test_other_accesses_of_kernels_are_refused():
    pytest.importorskip("numba")
    relax = fresh()
    with pytest.raises(TypeError):

        @relax.variant()
        @ost.kernel
        def looped(src: ost.Read, dst: ost.ReadWrite, omega):
            dst[0] = src[0]

    assert names(relax) == []


def test_an_extra_parameter_without_a_value_is_refused():
    relax = fresh()
    with pytest.raises(TypeError, match="block"):

        @relax.variant()
        def tiled(src: ost.Read, dst: ost.Write, omega, block):
            np.multiply(src, omega, out=dst)

    with pytest.raises(TypeError, match="depth"):

        @relax.variant(config={"block": 8})
        def deeper(src: ost.Read, dst: ost.Write, omega, block, depth):
            np.multiply(src, omega, out=dst)

    assert names(relax) == []


def test_an_extra_parameter_with_a_default_is_fine():
    relax = fresh()

    @relax.variant()
    def tiled(src: ost.Read, dst: ost.Write, omega, block=8, *, depth=3):
        np.multiply(src, omega, out=dst)

    assert names(relax) == ["tiled"]


@pytest.mark.parametrize("on", ["cpu:0", "cpus", "gpu", "", 3, ["cpu"], b"cpu"], ids=stable_repr)
def test_wrong_kinds(on):
    with pytest.raises((TypeError, ValueError), match=r"on|kind"):
        fresh().variant(on=on)(lambda: None)


@pytest.mark.parametrize("name", [3, "", b"fast", ["fast"]], ids=stable_repr)
def test_wrong_names(name):
    def fine(src: ost.Read, dst: ost.Write, omega):
        """Does nothing."""

    with pytest.raises((TypeError, ValueError), match="name"):
        fresh().variant(name=name)(fine)


@pytest.mark.parametrize(
    "config",
    [3, "block", [("block", 8)], {3: 8}, {"block": object()}, {"block": float("nan")}, {"block": np.zeros(3)}],
    ids=stable_repr,
)
def test_wrong_configurations(config):
    def fine(src: ost.Read, dst: ost.Write, omega, block=8):
        """Does nothing."""

    with pytest.raises((TypeError, ValueError)):
        fresh().variant(config=config)(fine)


def test_variant_is_no_key_of_a_configuration():
    def fine(src: ost.Read, dst: ost.Write, omega):
        """Does nothing."""

    with pytest.raises(ValueError, match="variant"):
        fresh().variant(config={"variant": 1})(fine)


def test_a_configuration_does_not_change_later():
    relax = fresh()
    config = {"block": 8, "shape": [1, 2]}

    @relax.variant(config=config)
    def tiled(src: ost.Read, dst: ost.Write, omega, block=1):
        np.multiply(src, omega, out=dst)

    config["block"] = 9
    config["shape"].append(3)
    assert dict(relax.variants[0].config) == {"block": 8, "shape": [1, 2]}


def test_the_same_twice_is_refused():
    relax = fresh()

    def fast(src: ost.Read, dst: ost.Write, omega):
        """Does nothing."""

    relax.variant()(fast)
    with pytest.raises(ValueError, match="fast"):
        relax.variant()(fast)
    relax.variant(config={"block": 8})(fast)
    with pytest.raises(ValueError, match="fast"):
        relax.variant(config={"block": 8})(fast)
    relax.variant(name="another")(fast)
    assert len(relax.variants) == 3


def test_the_name_of_the_task_itself_is_taken():
    relax = fresh()
    with pytest.raises(ValueError, match="relax"):

        @relax.variant(name="relax")
        def other(src: ost.Read, dst: ost.Write, omega):
            np.multiply(src, omega, out=dst)


@pytest.mark.parametrize("what", [3, None, "fast", object()], ids=stable_repr)
def test_what_is_no_implementation(what):
    relax = fresh()
    with pytest.raises(TypeError):
        relax.variant()(what)
    assert names(relax) == []


def test_coroutines_and_generators_do_no_work_when_called():
    relax = fresh()

    async def later(src: ost.Read, dst: ost.Write, omega):
        dst[...] = src * omega

    def piecewise(src: ost.Read, dst: ost.Write, omega):
        yield

    for function in (later, piecewise):
        with pytest.raises(TypeError):
            relax.variant()(function)


# The task itself is the default


def test_a_call_runs_the_task_itself():
    relax = fresh()

    @relax.variant()
    def wrong(src: ost.Read, dst: ost.Write, omega):
        dst[...] = -1

    a, b = np.ones(3), np.zeros(3)
    relax(a, b)
    assert b.tolist() == [0.5, 0.5, 0.5]


def test_without_measurements_a_program_runs_the_task_itself(machine):
    relax = fresh()

    @relax.variant(on="cpu")
    def wrong(src: ost.Read, dst: ost.Write, omega):
        dst[...] = -1

    a, b = np.ones(3), np.zeros(3)
    with ost.capture() as graph:
        relax(a, b)
    with graph.compile(machine) as program:
        program.replay(3)
        program.verify()
    assert b.tolist() == [0.5, 0.5, 0.5]
    assert graph.ops[0].name == "relax"


def test_costs_given_by_hand_choose_no_variant(machine):
    relax = fresh()

    @relax.variant(on="cpu")
    def wrong(src: ost.Read, dst: ost.Write, omega):
        dst[...] = -1

    a, b = np.ones(3), np.zeros(3)
    with ost.capture() as graph:
        relax(a, b)
    with graph.compile(machine, costs={relax: 1e-6}) as program:
        program.replay(3)
    assert b.tolist() == [0.5, 0.5, 0.5]


def test_a_program_is_a_snapshot_of_the_variants(machine):
    relax = fresh()
    a, b = np.ones(3), np.zeros(3)
    with ost.capture() as graph:
        relax(a, b)
    with graph.compile(machine) as program:

        @relax.variant()
        def other(src: ost.Read, dst: ost.Write, omega):
            dst[...] = -1

        program.replay(2)
    assert b.tolist() == [0.5] * 3
