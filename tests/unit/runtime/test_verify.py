"""verify: it finds tasks that do not keep what they declare, names them and the array, and changes nothing."""

from __future__ import annotations

import ctypes
import threading
import weakref

import numpy as np
import pytest

import ostinato as ost
import programs


@ost.task
def add(a: ost.Read, b: ost.ReadWrite, factor=1):
    b += a * factor


@ost.task
def assign(a: ost.Read, b: ost.Write):
    b[...] = a


@pytest.fixture
def check(machine):
    """Record what a function does, verify it, and see that the arrays are as they were."""

    def check(record, *arrays, steps=1, **params):
        before = [np.array(array) for array in arrays]
        with ost.capture() as graph:
            record()
        try:
            with graph.compile(machine) as program:
                program.verify(steps, **params)
        finally:
            for array, copy in zip(arrays, before, strict=True):
                assert (np.array(array) == copy).all()

    return check


def test_good_programs_pass_and_leave_no_trace(check):
    u = ost.ring(np.arange(8.0), np.zeros(8))
    total, log, flag = np.zeros(1), [], np.zeros(1, bool)

    @ost.task
    def relax(src: ost.Read, dst: ost.Write, omega):
        dst[...] = src[:-2] * omega + src[2:]

    @ost.task
    def note(x: ost.Read, log: ost.ReadWrite, total: ost.ReadWrite, step):
        log.append(step)
        total += len(log) * x.sum()

    @ost.task
    def enough(total: ost.Read, flag: ost.Write):
        flag[0] = total[0] > 200

    def record():
        relax(u[0], u[1][1:-1], ost.param("omega"))
        note(u[1], log, total, ost.step)
        enough(total, flag)
        ost.until(flag, every=2)

    check(record, *u.arrays, total, flag, steps=20, omega=0.5)
    assert log == []


def test_a_write_region_left_unwritten_is_named(check):
    a, b = np.arange(6), np.arange(12)[::-2]

    @ost.task
    def half(a: ost.Read, b: ost.Write):
        b[:3] = a[:3]

    with pytest.raises(
        ost.ContractError, match=r"'half' left part of argument 2 'b' .*3 of 6 .*\(3,\).*test_verify.py"
    ):
        check(lambda: half(a, b=b), a, b)


def test_unwritten_is_told_from_written_with_the_very_pattern(check):
    a, b = np.arange(256, dtype=np.uint8), np.zeros(256, np.uint8)
    check(lambda: assign(a, b), a, b)
    check(lambda: assign(a != 0, b.view(bool)), a, b)


def test_what_a_task_reads_too_is_not_filled(check):
    a = np.arange(12.0)
    check(lambda: assign(a[2:8], a[0:6]), a, steps=3)
    check(lambda: assign(a[1::2], a[0::2]), a, steps=3)


def test_a_write_that_was_not_declared_is_named(check):
    a, b = np.arange(4), np.zeros(4, int)
    user = np.array([0, 1, 2], np.int64)  # it reads its first argument, and writes its second
    lies = ost.native(programs.native_mix((1, 2), 0, 0).address, (ost.Read, ost.Read), name="lies", user=user)
    with pytest.raises(ost.ContractError, match=r"'lies' wrote to argument 2 \(shape \(4,\), int64\).*not declare"):
        check(lambda: lies(a, b), a, b)


def test_a_write_beside_the_arguments_is_found(check):
    a, b = np.arange(8), np.zeros(8, int)

    @ost.task
    def overrun(b: ost.Write):
        ctypes.memset(b.ctypes.data, 1, 5 * b.itemsize)

    with pytest.raises(ost.ContractError, match="'overrun' wrote to memory beside its arguments"):
        check(lambda: overrun(b[:4]), b)
    with pytest.raises(ost.ContractError, match=r"'overrun' wrote to argument 1 'a' .* of 'add', which"):
        check(lambda: (overrun(b[:4]), add(b[4:], a[4:])), a, b)


def test_a_write_to_the_array_itself_is_found(check):
    a, b = np.arange(4), np.zeros(4, int)

    @ost.task
    def sneaky(b: ost.Write):
        b[...] = 1
        a[0] = 7

    with pytest.raises(ost.ContractError, match=r"'sneaky' wrote to argument 1 'a' .* of 'add'.*the array itself"):
        check(lambda: (sneaky(b), add(a, b)), a, b)


def test_a_task_that_reads_an_array_that_changes_without_declaring_it_is_found(check):
    a, b = np.arange(4), np.zeros(4, int)

    @ost.task
    def peek(b: ost.ReadWrite):
        b += a

    with pytest.raises(ost.ContractError, match=r"'peek' wrote other values to argument 1 'b'.*did not declare"):
        check(lambda: (add(b, a), add(a, a), peek(b)), a, b)


def test_a_task_that_reads_what_it_declares_written_is_found(check):
    a, b = np.arange(1, 5), np.zeros(4, int)

    @ost.task
    def accumulate(a: ost.Read, b: ost.Write):
        b += a

    with pytest.raises(ost.ContractError, match=r"'accumulate' wrote other values to argument 2 'b'.*old values"):
        check(lambda: accumulate(a, b), a, b)


def test_a_result_that_changes_from_run_to_run_is_found(check):
    b, calls = np.zeros(4, int), []

    @ost.task
    def count(b: ost.ReadWrite):
        calls.append(None)
        if len(calls) == 3:
            b[1] += 1

    with pytest.raises(ost.ContractError, match=r"replay differs .* 'b' .*index \(1,\).*'count' at .*test_verify.py"):
        check(lambda: count(b), b)


def test_a_failing_task_raises_as_in_a_replay(check):
    a, b = np.arange(4), np.zeros(4, int)

    @ost.task
    def fail(a: ost.ReadWrite, step):
        a += 1
        if step == 2:
            raise KeyError("no")

    with pytest.raises(ost.TaskError, match=r"'fail' raised KeyError.* step 2") as caught:
        check(lambda: (add(b, a), fail(a, ost.step)), a, b, steps=4)
    assert isinstance(caught.value.__cause__, KeyError)
    assert caught.value.op.name == "fail"
    assert caught.value.step == 2


def test_a_failure_that_follows_from_an_unwritten_part_is_told_as_that(check):
    places, b = np.zeros(4, int), np.zeros(4, int)

    @ost.task
    def choose(places: ost.Write):
        places[:2] = 1

    @ost.task
    def use(places: ost.Read, b: ost.ReadWrite):
        b[places] += 1

    with pytest.raises(ost.ContractError, match="'choose' left part of argument 1 'places'"):
        check(lambda: (choose(places), use(places, b)), places, b)


def test_a_write_to_a_read_array_fails(check):
    a = np.arange(4)

    @ost.task
    def wrong(a: ost.Read):
        a[0] = 1

    with pytest.raises(ost.TaskError, match="read-only"):
        check(lambda: wrong(a), a)


@pytest.mark.parametrize("kind", [bytearray, lambda data: memoryview(bytearray(data))])
def test_arrays_of_other_libraries_are_copied(check, kind):
    face = kind(bytes(range(8)))
    same = np.asarray(memoryview(face))

    @ost.task
    def turn(face: ost.ReadWrite):
        face[:4], face[4:] = bytes(face[4:]), bytes(face[:4])

    check(lambda: (turn(face), add(same[:4], same[4:])), same, steps=3)


def test_arrays_of_objects_are_left_as_they_were(check):
    inner = [1]
    objects = np.array([inner, None, 3], dtype=object)
    total = np.zeros(1, int)

    @ost.task
    def grow(objects: ost.ReadWrite, total: ost.ReadWrite):
        objects[0].append(len(objects[0]))
        objects[1] = "changed"
        total += sum(objects[0])

    check(lambda: grow(objects, total), total, steps=3)
    assert objects[0] is inner
    assert inner == [1]
    assert objects[1] is None


def test_what_tokens_share_with_arrays_is_shared_by_the_copies(check):
    a = np.arange(4)

    class Holder:
        array = None

    holder = Holder()
    holder.array = a

    @ost.task
    def through(holder: ost.ReadWrite, a: ost.ReadWrite):
        holder.array += 1
        a *= 2

    check(lambda: through(holder, a), a, steps=2)


def test_tokens_that_cannot_be_copied_stand_for_themselves(check):
    lock, a = threading.Lock(), np.zeros(2)

    @ost.task
    def guarded(lock: ost.ReadWrite, a: ost.ReadWrite):
        with lock:
            a += 1

    check(lambda: guarded(lock, a), a)


def test_padding_does_not_count(check):
    a, b = np.arange(5, dtype=np.longdouble), np.zeros(5, np.longdouble)
    check(lambda: (add(a, b), assign(b, a)), a, b, steps=2)
    pair = np.zeros(3, np.dtype([("x", "i1"), ("y", "f8")], align=True))
    copied = np.zeros_like(pair)
    check(lambda: assign(pair, copied))


def test_it_works_on_what_stands_for_the_arrays(machine):
    a, b, new = np.arange(4.0), np.zeros(4), np.full(4, 3.0)
    with ost.capture() as graph:
        add(a[1:], b[1:])
        assign(a[::-1], b)
    with graph.compile(machine) as program:
        program.replay(2)
        program.rebind([(a, new)])
        program.verify(3)
        assert (new == 3).all()
        assert program.replay() == 1
        assert (b == 3).all()


def test_wrong_arguments_are_refused(machine):
    a, b = np.arange(4), np.zeros(4, int)
    with ost.capture() as graph:
        add(a, b, ost.param("factor"))
    with graph.compile(machine) as program:
        with pytest.raises(TypeError, match="no default"):
            program.verify()
        with pytest.raises(ValueError, match="at least 0"):
            program.verify(-1, factor=1)
        program.verify(0, factor=2)
        program.verify(2, params={"factor": 2})
    with pytest.raises(RuntimeError, match="closed"):
        program.verify(factor=1)


def test_a_task_cannot_verify(machine):
    holder, a = [], np.zeros(1)

    @ost.task
    def inside(a: ost.ReadWrite):
        holder[0].verify()

    with ost.capture() as graph:
        inside(a)
    with graph.compile(machine) as program:
        holder.append(program)
        with pytest.raises(ost.TaskError) as caught:
            program.replay()
    assert isinstance(caught.value.__cause__, ost.ContractError)


class Gone:
    """Something that ends before its proxy does."""


PROXY = weakref.proxy(Gone())


@ost.task
def use_proxy(x: ost.ReadWrite):
    x += 1 if PROXY is not None else 0


def test_a_proxy_of_what_is_no_more_is_passed_over(machine):
    with ost.capture() as graph:
        use_proxy(np.zeros(2))
    with graph.compile(machine) as program:
        assert program.verify(2).steps == 2


@pytest.mark.parametrize("overwritten", [False, True])
def test_a_task_that_wrote_long_before_it_was_found_is_named(check, overwritten):
    x, hidden = np.zeros(2), np.zeros(5)

    @ost.task
    def sneaky(x: ost.ReadWrite):
        hidden[3] = 7

    @ost.task
    def add(x: ost.ReadWrite):
        x += 1

    @ost.task
    def overwrite(x: ost.Write):
        x[...] = 1

    def record():
        add(x)
        sneaky(x)
        add(x)
        (overwrite if overwritten else add)(hidden)

    with pytest.raises(ost.ContractError, match=r"'sneaky' wrote to argument 1 'x' .* of .*the array itself"):
        check(record, x, hidden, steps=3)


def test_a_task_that_wrote_once_only_is_found_though_not_named(check):
    x, hidden, calls = np.zeros(2), np.zeros(5), []

    @ost.task
    def once(x: ost.ReadWrite):
        calls.append(1)
        if len(calls) == 1:
            hidden[3] = 7

    @ost.task
    def add(x: ost.ReadWrite):
        x += 1

    def record():
        once(x)
        add(hidden)

    with pytest.raises(ost.ContractError, match=r"a task wrote to argument 1 'x' .* of 'add'"):
        check(record, x, hidden)


def test_it_compares_in_linear_time(machine, monkeypatch):
    compared = 0
    array_equal = np.array_equal

    def count(one, other, *args):
        nonlocal compared
        compared += np.size(one)
        return array_equal(one, other, *args)

    @ost.task
    def add(x: ost.ReadWrite):
        x += 1

    monkeypatch.setattr(np, "array_equal", count)
    found = []
    for ops in (20, 40):
        with ost.capture() as graph:
            for _ in range(ops):
                add(np.zeros(100))
        compared = 0
        with graph.compile(machine) as program:
            program.verify()
        found.append(compared)
    assert 0 < found[1] < 3 * found[0]


def test_a_kernel_with_an_index_out_of_bounds():
    pytest.importorskip("numba")

    @ost.kernel
    def shift(src: ost.Read, dst: ost.ReadWrite, by: int):
        for i in range(len(src)):
            dst[i + by] = src[i]

    x, memory = np.ones(4), np.zeros(9)
    with ost.compile(shift, x, memory[:4], ost.param("by", 0)) as program:
        assert program.verify(2)
        with pytest.raises(ost.ContractError, match=r"'shift' uses an index that is out of bounds .* in step 0"):
            program.verify(by=1)
    assert memory.tolist() == [0.0] * 9

    @ost.kernel
    def total(src: ost.Read, dst: ost.Write):
        dst[0] = 0.0
        for i in range(5):
            dst[0] += src[i]

    with ost.compile(total, x, np.zeros(1)) as program, pytest.raises(ost.ContractError, match="out of bounds"):
        program.verify()
