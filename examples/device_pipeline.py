"""A pipeline over a device: photographs are decoded on a CPU, smoothed on a device, and encoded on a CPU.

One CPU thread keeps the device busy: the buffers between the stages are rings, so that while the device has one
photograph, the thread encodes the one before and decodes the next. Nothing here copies to the device or waits for it:
the program does. The kernel (device_pipeline.cl) is the same for OpenCL and CUDA.
"""

import argparse
import functools
import importlib.util
import io
import os
import time
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

import ostinato as ost
from ostinato.demo import photograph

SOURCE = Path(__file__).with_suffix(".cl").read_text()
REACH, LIKE = 2, 48  # pixels to each side; what differs by less is one thing
BUFFERS = 4


@functools.cache
def opencl_kernel(context: Any) -> Any:
    import pyopencl as cl

    return cl.Kernel(cl.Program(context, SOURCE).build(), "smooth")


@functools.cache
def cuda_kernel() -> Any:
    from cuda.core import Device, Program, ProgramOptions

    device = Device()
    device.set_current()
    program = Program(SOURCE, "c++", ProgramOptions(std="c++17", arch=f"sm_{device.arch}"))
    return program.compile("cubin").get_kernel("smooth")


@ost.task(releases_gil=True)
def decode(photographs: ost.Read, k: int, noisy: ost.Write) -> None:
    with Image.open(io.BytesIO(photographs[k % len(photographs)])) as image:
        noisy[...] = np.asarray(image)


@ost.task(launch_only=True)
def smooth(noisy: ost.Read, clean: ost.Write, stream: ost.Stream) -> None:
    (height, pixels, _), numbers = clean.shape, (np.int32(REACH), np.int32(LIKE))
    if hasattr(stream, "queue"):  # OpenCL's
        kernel, size = opencl_kernel(stream.queue.context), (3 * pixels, height)
        kernel(stream.queue, size, None, noisy.data, clean.data, *numbers)
    else:
        from cuda.core import LaunchConfig, Stream, launch

        config = LaunchConfig(grid=(3 * pixels // 96, height), block=96)
        launch(Stream.from_handle(stream.handle), config, cuda_kernel(), noisy.handle, clean.handle, *numbers)


@ost.task(releases_gil=True)
def encode(clean: ost.Read, k: int, results: ost.ReadWrite) -> None:
    file = io.BytesIO()
    Image.fromarray(clean).save(file, "PNG", compress_level=1)
    results[k % len(results)] = file.getvalue()


def pipeline(photographs: list[bytes], k: Any, noisy: Any, clean: Any, results: list[bytes]) -> None:
    """One photograph: runs on arrays, and is recorded while a step is compiled."""
    decode(photographs, k, noisy)
    smooth(noisy, clean)
    encode(clean, k, results)


def buffers(size: int) -> tuple[np.ndarray, np.ndarray]:
    noisy, clean = (np.zeros((side, side, 3), np.uint8) for side in (size + 2 * REACH, size))
    return noisy, clean


def plain_loop(photographs: list[bytes], size: int) -> list[bytes]:
    results = [b""] * len(photographs)
    noisy, clean = buffers(size)
    for k in range(len(photographs)):
        pipeline(photographs, k, noisy, clean, results)
    return results


def compiled(photographs: list[bytes], size: int, results: list[bytes], machine: ost.Machine) -> ost.Program:
    def step(noisy: Any, clean: Any) -> None:
        pipeline(photographs, ost.step, noisy[0], clean[0], results)

    rings = (ost.ring(*each) for each in zip(*(buffers(size) for _ in range(BUFFERS)), strict=True))
    return ost.compile(step, *rings, machine=machine)


def take(count: int, size: int) -> list[bytes]:
    """Take photographs of a photograph: parts of it, as a camera sees them at night."""
    rng, side, files = np.random.default_rng(1906), size + 2 * REACH, []
    with Image.open(photograph.standard()) as image:
        whole = np.asarray(image.convert("RGB"))
    for _ in range(count):
        top, left = (rng.integers(length - side + 1) for length in whole.shape[:2])
        part = whole[top : top + side, left : left + side] + rng.normal(0, 12, (side, side, 3))
        files.append(io.BytesIO())
        Image.fromarray(part.clip(0, 255).astype(np.uint8)).save(files[-1], "JPEG", quality=90)
    return [file.getvalue() for file in files]


def seconds(trace: Any) -> float:
    return float(trace.records["end"].max() - trace.records["start"].min()) / 1e9


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--count", type=int, default=24, help="photographs (default: %(default)s)")
    parser.add_argument("--size", type=int, default=256, help="pixels on a side, times of 32 (default: %(default)s)")
    parser.add_argument("--output", type=Path, help="draw the timeline device_pipeline.png in this directory")
    options = parser.parse_args(argv)

    os.environ.setdefault("POCL_MAX_PTHREAD_COUNT", "1")  # a device that is a CPU leaves the others to the host
    photographs, results = take(options.count, options.size), [b""] * options.count
    with ost.Machine(cpus=1) as machine:
        if len(machine.processors) == 1:
            print("There is no device. One that runs on CPUs: pip install 'ostinato[opencl]' pocl-binary-distribution")
            return 0 if importlib.util.find_spec("pyopencl") is None else 1
        with compiled(photographs, options.size, results, machine) as program:
            expected, plain = plain_loop(photographs, options.size), []
            program.replay(options.count)  # the kernel is compiled
            traces = []
            for _ in range(3):
                start = time.perf_counter()
                plain_loop(photographs, options.size)
                plain.append(time.perf_counter() - start)
                traces.append(program.trace(options.count))
    trace = min(traces, key=seconds)  # the ones least disturbed by other processes
    if options.output:
        options.output.mkdir(parents=True, exist_ok=True)
        trace.plot(options.output / "device_pipeline.png", steps=6)

    busy = trace.busy()
    busiest = max(busy, key=busy.__getitem__)
    for who, took in (("plain loop", min(plain)), ("replay", seconds(trace))):
        print(f"{who}: {options.count / took:.1f} photographs a second")
    print("busy in that: " + ", ".join(f"{name} {each / seconds(trace):.0%}" for name, each in busy.items()))
    print(f"bound by {busiest}: {1e3 * busy[busiest] / options.count:.1f} ms a photograph")
    print(f"files equal byte for byte: {'yes' if results == expected else 'NO'}")
    return 0 if results == expected else 1


if __name__ == "__main__":
    raise SystemExit(main())
