"""What fails on a device poisons what depends on it, and nothing else; on the fake device."""

from __future__ import annotations

import numpy as np
import pytest

import ostinato as ost
from ostinato.devices.array import empty
from runtime.device_tasks import add, fail, host_add, host_put, put, raise_at_issue, scale
from support import fake_device as fake

DEADLINE = 60


@pytest.fixture
def device():
    with fake.install() as (device,):
        yield device


@pytest.fixture(params=[1, 2], ids=lambda cpus: f"{cpus}cpus")
def machine(request, device):
    with ost.Machine(cpus=request.param) as machine:
        yield machine


@pytest.mark.parametrize("task", [fail, raise_at_issue])
def test_what_depends_on_it_is_skipped_and_nothing_else(machine, task):
    x, y, z, other = np.ones(2), np.zeros(2), np.zeros(2), np.zeros(2)
    with ost.capture() as graph:
        task(x)
        scale(x, y, 2.0)
        host_add(z, y)
        host_put(other, 1.0)
    with graph.compile(machine) as program:
        with pytest.raises(ost.TaskError, match=r"raised (DeviceError|ArithmeticError)") as raised:
            program.replay(3)
        assert (z == 0).all()
        assert (other == 1).all()
        assert raised.value.step == 0
        if task is fail:
            assert raised.value.op is graph.ops[1]  # who waits for the device
            assert "'fail' at" in raised.value.__notes__[-1]  # who had not
            cause = raised.value.__cause__
            assert isinstance(cause, ost.DeviceError)
            assert cause.device == "fake:0"
            assert cause.usable
            assert "no such number" in str(cause)
        else:
            assert raised.value.op is graph.ops[0]


def test_a_host_failure_skips_device_work(machine):
    x, y = np.ones(2), np.zeros(2)

    @ost.task
    def broken(x: ost.ReadWrite):
        raise ValueError("on the host")

    with ost.capture() as graph:
        broken(x)
        scale(x, y, 2.0)
        put(y[:1], 7.0)
    with graph.compile(machine) as program:
        with pytest.raises(ost.TaskError, match="on the host"):
            program.replay()
        assert (y == 0).all()


def test_the_next_run_starts_clean(device, machine):
    x, y, broken = np.ones(2), np.zeros(2), [True]

    @ost.task
    def sometimes(stream: ost.Stream, x: ost.ReadWrite):
        def kernel(a):
            if broken[0]:
                raise ArithmeticError("now and then")
            a += 1

        fake.launch(stream, kernel, x)

    with ost.capture() as graph:
        sometimes(x)
        host_add(y, x)
    with graph.compile(machine) as program:
        with pytest.raises(ost.TaskError):
            program.replay(5)
        broken[0] = False
        x[:] = 1
        y[:] = 0
        assert program.replay(3) == 3
        assert (y == 2 + 3 + 4).all()


def test_postconditions_that_depend_on_it_are_poisoned_and_others_trigger(machine):
    x, y = np.ones(2), np.ones(2)
    graph = ost.Graph()
    bad = graph.task(fail, x)
    good = graph.task(host_put, y, 2.0)  # on a stream behind it, it could be taken for what failed
    graph.postcondition("bad", after=bad)
    graph.postcondition("good", after=good)
    with graph.compile(machine) as program:
        run = program.submit()
        with pytest.raises(ost.PoisonError):
            run.posts["bad"].wait(DEADLINE)
        run.posts["good"].wait(DEADLINE)
        with pytest.raises(ost.TaskError):
            run.result(DEADLINE)


def test_on_error_continue(machine):
    x, y = np.ones(2), np.zeros(2)
    with ost.capture() as graph:
        fail(x)
        put(y, ost.step)
    with graph.compile(machine) as program:
        with pytest.raises(ost.TaskError):
            program.replay(4, on_error="continue")
        assert (y == 3).all()


def test_no_memory_is_told_at_compile():
    with fake.install(capacity=64) as (_,), ost.Machine(cpus=1) as machine:
        x = np.ones(1000)
        with ost.capture() as graph:
            add(x, x)
        with pytest.raises(ost.DeviceError, match=r"fake:0.*'add' at test_device_failure.py"):
            graph.compile(machine)


def test_there_is_no_device():
    with ost.Machine(cpus=1, gpus=0) as machine:
        x = np.ones(3)
        with ost.capture() as graph:
            add(x, x)
        with pytest.raises(ost.GraphError, match="has only cpu:0"):
            graph.compile(machine)


def test_machines_have_as_many_devices_as_were_asked_for():
    with fake.install(count=2):
        with ost.Machine(cpus=1, gpus=1) as machine:
            assert [each.name for each in machine.processors] == ["cpu:0", "fake:0"]
        with ost.Machine(cpus=1) as machine:
            assert [each.name for each in machine.memories] == ["host", "fake:0", "fake:1"]
        with pytest.raises(ost.DeviceError, match="fake:0, fake:1"):
            ost.Machine(cpus=1, gpus=3)


def test_a_lost_device_is_told_and_not_compiled_for_again(device, machine):
    x = empty(device, 3)
    x.set(1.0)
    with ost.capture() as graph:
        add(x, x)
    with graph.compile(machine) as program:
        program.replay(2)
        device.core.lose()
        with pytest.raises(ost.TaskError, match="lost") as raised:
            program.replay(2)
        assert isinstance(raised.value.__cause__, ost.DeviceError)
        with pytest.raises(ost.DeviceError, match="fake:0"):
            graph.compile(machine)
        y = np.ones(2)
        with ost.capture() as other:
            host_add(y, y)
        with other.compile(machine) as on_the_host:
            on_the_host.replay()
        assert (y == 2).all()


def test_processors_say_which_can_be_used():
    with fake.install(count=2) as (first, _), ost.Machine(cpus=1) as machine:
        assert all(processor.usable for processor in machine.processors)
        assert "not usable" not in f"{machine} {machine.processors}"
        x = np.ones(3)
        with ost.capture() as graph:
            graph.task(add, x, x, on="fake:0")
        with graph.compile(machine) as program:
            first.core.fail_piece(1, first.core.LOST)
            with pytest.raises(ost.TaskError, match="lost"):
                program.replay()
        assert [processor.usable for processor in machine.processors] == [True, False, True]
        assert repr(machine) == "<Machine of 1 CPUs, fake:0 (not usable), fake:1>"
        assert repr(machine.processor("fake:0")).endswith(") (not usable)")
        with ost.Machine(cpus=1) as other, pytest.raises(ost.DeviceError, match="fake:0 failed before") as refused:
            graph.compile(other)  # it is lost to the process
        assert (refused.value.device, refused.value.usable) == ("fake:0", False)


def test_a_processor_says_so_after_a_failure_outside_of_programs(device, machine):
    x = empty(device, 3)
    device.core.fail_piece(1, device.core.STICKY)
    with pytest.raises(ost.DeviceError, match="only a new process recovers") as raised:
        x.set(1.0)
    assert (raised.value.device, raised.value.usable) == ("fake:0", False)
    assert not machine.processor("fake:0").usable


@pytest.mark.parametrize("method", ["open", "copy", "call", "record", "allocate"])
@pytest.mark.parametrize("usable", [True, False])
def test_what_a_driver_reports_at_once_says_of_which_device_and_whether_it_is_lost(device, machine, method, usable):
    x = empty(device, 3)
    x.set(1.0)
    device.core.fail(method, 1, device.core.FAILED if usable else device.core.STICKY)
    use = {"allocate": lambda: empty(device, 3), "call": lambda: add(x, x)}.get(method, lambda: x.set(2.0))
    with pytest.raises(ost.DeviceError, match=r"^fake:0: ") as raised:
        use()
    assert (raised.value.device, raised.value.usable) == ("fake:0", usable)
    assert machine.processor("fake:0").usable == usable


@pytest.mark.parametrize("method", ["open", "allocate"])
def test_what_a_driver_reports_while_compiling_says_so_too(device, machine, method):
    x = np.ones(3)
    with ost.capture() as graph:
        add(x, x)
    device.core.fail(method, 1, device.core.LOST)
    with pytest.raises(ost.DeviceError, match=r"^fake:0: .*lost") as raised:
        graph.compile(machine)
    assert (raised.value.device, raised.value.usable) == ("fake:0", False)
    assert not machine.processor("fake:0").usable


def test_profiles_say_what_failed_and_what_was_skipped(device, machine):
    x, y, z = (empty(device, 2) for _ in range(3))
    for each in (x, y, z):
        each.set(1.0)
    host = np.zeros(2)
    with ost.capture() as graph:
        add(y, y)
        fail(x)
        scale(x, z, 2.0)
        host_add(host, z)
    with graph.compile(machine) as program:
        run = program.submit(1, profile=True)
        assert isinstance(run.exception(DEADLINE), ost.TaskError)
        found = {record.op.name: record for record in run.profile}
    assert found["host_add"].status == "poisoned"
    assert found["host_add"].processor.name.startswith("cpu:")
    assert "failed" in {found["scale"].status, found["fail"].status}
    assert found["add"].status == "ok"
    assert found["add"].processor.name == "fake:0"


def test_a_failure_on_another_stream_is_not_lost(device, machine):
    """What fails on one stream, and nobody waits for on the host, fails what other streams make of it."""
    x, there, y = np.ones(2), empty(device, 2), np.zeros(2)
    there.set(0.0)
    graph = ost.Graph()
    graph.task(fail, there)
    graph.copy(there, y)  # on a stream of its own
    graph.task(host_add, x, y)
    with graph.compile(machine) as program:
        with pytest.raises(ost.TaskError, match="no such number"):
            program.replay()
        assert (x == 1).all()


def test_a_failure_in_one_step_of_many_is_told(device, machine):
    """Nobody on the host waits in any step."""
    x = empty(device, 2)
    x.set(0.0)
    calls = []

    @ost.task
    def fails_once(stream: ost.Stream, x: ost.ReadWrite):
        def kernel(a):
            calls.append(None)
            if len(calls) == 3:
                raise ArithmeticError("once")
            a += 1

        fake.launch(stream, kernel, x)

    with ost.capture() as graph:
        fails_once(x)
    with graph.compile(machine) as program:
        with pytest.raises(ost.TaskError, match="once"):
            program.replay(100)
        assert program.replay(5) == 5


def test_a_task_with_a_stream_cannot_be_bound_to_a_cpu(machine):
    graph = ost.Graph()
    graph.task(add, np.ones(2), np.ones(2), on="cpu:0")
    with pytest.raises(ost.GraphError, match="cannot run on a CPU"):
        graph.compile(machine)
