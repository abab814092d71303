"""What only a GPU can show: failures of the real driver, and other libraries' work and arrays in tasks."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import ostinato as ost
from devices.cuda.driver import Kernels
from ostinato.devices.array import empty
from ostinato.devices.cuda import CudaDevice

pytestmark = pytest.mark.usefixtures("gpu_only")

FAULT = """
import sys
sys.path.insert(0, sys.argv[1])
import ostinato as ost
from devices.cuda.driver import kernels
from ostinato.devices import device as discovery
from ostinato.devices.cuda import DRIVER

found = discovery.usable("cuda")
cuda = kernels(DRIVER, found[0])

@ost.task
def fault(stream: ost.Stream, x: ost.ReadWrite):
    cuda.launch("fault", stream.handle)

with ost.Machine(cpus=1) as machine:
    x = machine.processor("cuda:0").memory.empty(8, float)
    with ost.capture() as graph:
        fault(x)
    program = graph.compile(machine)
    try:
        program.replay(1)
    except ost.TaskError as error:
        print(type(error.__cause__).__name__, error.__cause__.usable, error.__cause__)
    program.close()
"""


@pytest.fixture
def machine(device: CudaDevice) -> Iterator[ost.Machine]:
    with ost.Machine(cpus=1) as made:
        yield made


def replayed_on(machine: ost.Machine, task: Callable[..., Any], x: Any, *, steps: int = 3) -> None:
    """Run a task that doubles its array."""
    with ost.capture() as graph:
        task(x)
    with graph.compile(machine) as program:
        program.replay(steps)


def test_a_failing_kernel_of_a_gpu_is_its_operations_failure(device: CudaDevice) -> None:
    """In a process of its own: afterwards it has no GPU any more."""
    command = [sys.executable, "-c", FAULT, str(Path(__file__).parents[3])]
    said = subprocess.run(command, check=True, capture_output=True, text=True, timeout=100).stdout
    assert said.startswith("DeviceError False cuda:0: CUDA_ERROR_ILLEGAL_ADDRESS (700)")


def test_memory_of_a_gpu_runs_out(device: CudaDevice) -> None:
    free, _ = device.core.memory()
    with pytest.raises(ost.DeviceError, match="CUDA_ERROR_OUT_OF_MEMORY"):
        device.allocate(2 * free)


def test_it_is_the_device_that_leases_mean(device: CudaDevice) -> None:
    from ostinato.tune.leases.cuda import cuda_device

    assert cuda_device("cuda:0").identities == (device.identity,)
    assert cuda_device("cuda:0").model == device.model


def test_device_arrays_are_arrays_of_pytorch(device: CudaDevice) -> None:
    torch = pytest.importorskip("torch", reason="PyTorch is not installed")
    array = empty(device, (3, 4))
    array.set(np.arange(12.0).reshape(3, 4))
    for tensor in (torch.as_tensor(array[1:], device="cuda:0"), torch.from_dlpack(array[1:])):
        assert tensor.data_ptr() == array[1:].handle
        assert tensor.cpu().tolist() == array.get()[1:].tolist()


@pytest.mark.parametrize("launch_only", [False, True])
def test_tasks_of_pytorch(machine: ost.Machine, launch_only: bool) -> None:
    torch = pytest.importorskip("torch", reason="PyTorch is not installed")

    @ost.task(launch_only=launch_only)
    def double(stream: ost.Stream, x: ost.ReadWrite) -> None:
        with torch.cuda.stream(torch.cuda.ExternalStream(stream.handle)):
            torch.as_tensor(x, device="cuda").mul_(2)

    tensor = torch.ones(1000, device="cuda")
    replayed_on(machine, double, tensor)
    assert (tensor == 8).all().item()
    array = np.ones(1000)
    replayed_on(machine, double, array)
    assert (array == 8).all()


def test_arrays_that_a_task_only_reads_are_arrays_of_pytorch_too(machine: ost.Machine) -> None:
    torch = pytest.importorskip("torch", reason="PyTorch is not installed")

    @ost.task(launch_only=True)
    def add(stream: ost.Stream, x: ost.Read, y: ost.ReadWrite) -> None:
        with torch.cuda.stream(torch.cuda.ExternalStream(stream.handle)):
            for take in (lambda array: torch.as_tensor(array, device="cuda"), torch.from_dlpack):
                take(y).add_(take(x))

    x, y = np.ones(1000), np.zeros(1000)
    with ost.compile(add, x, y, machine=machine) as program:
        program.replay(3)
    assert (y == 6).all()


def test_the_example_of_the_documentation(device: CudaDevice, tmp_path: Path) -> None:
    pytest.importorskip("torch", reason="PyTorch is not installed")
    page = (Path(__file__).parents[4] / "docs" / "devices.md").read_text()
    script = tmp_path / "heat_torch.py"
    script.write_text(page.partition("```python\n# heat_torch.py\n")[2].partition("```")[0])
    command = [sys.executable, str(script)]
    said = subprocess.run(command, check=True, capture_output=True, text=True, timeout=100).stdout
    assert "compared: 1 operation" in said
    assert "degrees beside the hot edge" in said


@pytest.mark.parametrize("launch_only", [False, True])
def test_tasks_of_cupy(machine: ost.Machine, launch_only: bool) -> None:
    cupy = pytest.importorskip("cupy", reason="CuPy is not installed")

    @ost.task(launch_only=launch_only)
    def double(stream: ost.Stream, x: ost.ReadWrite) -> None:
        with cupy.cuda.Stream.from_external(stream):
            x = cupy.asarray(x)
            cupy.multiply(x, 2, out=x)

    theirs = cupy.ones(1000)
    replayed_on(machine, double, theirs)
    assert (theirs == 8).all()
    array = np.ones(1000)
    replayed_on(machine, double, array)
    assert (array == 8).all()


@pytest.mark.filterwarnings("ignore:.*under-utilization")
def test_tasks_of_numba(machine: ost.Machine) -> None:
    pytest.importorskip("numba", reason="Numba is not installed")
    numba_cuda = pytest.importorskip("numba.cuda", reason="numba-cuda is not installed")

    @numba_cuda.jit
    def kernel(x):  # type: ignore[no-untyped-def]
        at = numba_cuda.grid(1)
        if at < x.size:
            x[at] *= 2

    @ost.task
    def double(stream: ost.Stream, x: ost.ReadWrite) -> None:
        kernel[(x.size + 127) // 128, 128, numba_cuda.external_stream(stream.handle)](x)

    theirs = numba_cuda.to_device(np.ones(1000))
    replayed_on(machine, double, theirs)
    assert (theirs.copy_to_host() == 8).all()
    array = np.ones(1000)
    replayed_on(machine, double, array)
    assert (array == 8).all()


def test_tasks_of_triton(machine: ost.Machine) -> None:
    torch = pytest.importorskip("torch", reason="PyTorch is not installed")
    pytest.importorskip("triton", reason="Triton is not installed")
    from devices.cuda.triton_kernel import double as kernel

    @ost.task(launch_only=True)
    def double(stream: ost.Stream, x: ost.ReadWrite) -> None:
        with torch.cuda.stream(torch.cuda.ExternalStream(stream.handle)):
            kernel[(8,)](torch.as_tensor(x, device="cuda"), x.shape[0], BLOCK=128)

    tensor = torch.ones(1000, device="cuda")
    replayed_on(machine, double, tensor)
    assert (tensor == 8).all().item()


@pytest.mark.parametrize("launch_only", [False, True])
def test_kernels_of_nvrtc_by_cuda_core(machine: ost.Machine, launch_only: bool) -> None:
    core = pytest.importorskip("cuda.core", reason="cuda.core is not installed")
    device = core.Device()
    device.set_current()
    source = """
    extern "C" __global__ void twice(double *x, long long count) {
        long long at = blockIdx.x * (long long)blockDim.x + threadIdx.x;
        if (at < count)
            x[at] *= 2;
    }
    """
    try:
        program = core.Program(source, "c++", core.ProgramOptions(std="c++17", arch=f"sm_{device.arch}"))
        kernel = program.compile("cubin").get_kernel("twice")
        program.close()
    except Exception as error:
        if "nvrtc" not in str(error).lower():
            raise
        pytest.skip(f"NVRTC is not installed: {error}")

    @ost.task(launch_only=launch_only)
    def double(stream: ost.Stream, x: ost.ReadWrite) -> None:
        launched_on = core.Stream.from_handle(stream.handle)
        core.launch(launched_on, core.LaunchConfig(grid=8, block=128), kernel, x.handle, np.int64(x.size))

    array = np.ones(1000)
    replayed_on(machine, double, array)
    assert (array == 8).all()


def test_work_of_the_users_own_goes_on_beside_a_program(
    machine: ost.Machine, cuda: Kernels, device: CudaDevice
) -> None:
    """Streams of programs wait for nothing on the default stream, and nothing there waits for them."""

    @ost.task
    def add_one(stream: ost.Stream, x: ost.ReadWrite) -> None:
        cuda.axpb(stream.handle, x, 1.0, 1.0)

    ours, users = empty(device, 100), empty(device, 100)
    ours.set(0.0)
    users.set(0.0)
    with ost.capture() as graph:
        add_one(ours)
    with graph.compile(machine) as program:
        for _ in range(20):
            run = program.submit(50)
            for _ in range(50):
                cuda.axpb(1, users, 1.0, 1.0)
            run.result()
        device.finish()
    assert (ours.get() == 1000).all()
    assert (users.get() == 1000).all()
