"""A receiver and a spectrum analyser: programs of their own, linked block by block, with a third that calibrates.

The receiver reads blocks of a recording into a ring of buffers, the analyser turns each into a row of a picture.
Barriers link their steps: one tells that a block is there, the other that its buffer is free again. Rows are drawn
relative to the noise floor, a precondition that the third program fulfils. All is submitted before anything can run.
"""

import argparse
import contextlib
import time

import numpy as np

import ostinato as ost

BLOCK, BUFFERS, QUIET = 1024, 4, 32  # samples a block, blocks in flight, blocks that are calibrated with
WINDOW = np.hanning(BLOCK)


@ost.task
def receive(recording: ost.Read, k: int, block: ost.Write) -> None:
    np.multiply(recording[k * BLOCK : (k + 1) * BLOCK], 1 / 2**15, out=block)


@ost.task(releases_gil=True)
def transform(block: ost.Read, power: ost.Write) -> None:
    power[:] = np.abs(np.fft.rfft(block * WINDOW)[: BLOCK // 2]) ** 2


@ost.task
def add(power: ost.Read, floor: ost.ReadWrite) -> None:
    floor += power / QUIET


@ost.task
def draw(power: ost.Read, floor: ost.Read, k: int, picture: ost.ReadWrite) -> None:
    picture[k] = 10 * np.log10(power / floor.mean() + 1e-12)  # decibels


def plain_loop(quiet: np.ndarray, recording: np.ndarray, picture: np.ndarray) -> None:
    block, power, floor = np.zeros(BLOCK), np.zeros(BLOCK // 2), np.zeros(BLOCK // 2)
    for k in range(QUIET):
        receive(quiet, k, block)
        transform(block, power)
        add(power, floor)
    for k in range(len(picture)):
        receive(recording, k, block)
        transform(block, power)
        draw(power, floor, k, picture)


def linked(quiet: np.ndarray, recording: np.ndarray, picture: np.ndarray) -> None:
    blocks, powers, floor = np.zeros((BUFFERS, BLOCK)), np.zeros((2, BLOCK // 2)), np.zeros(BLOCK // 2)
    filled, emptied = ost.Barrier(1), ost.Barrier(1)
    with ost.Machine() as machine, contextlib.ExitStack() as programs:
        with ost.capture() as graph:
            sample, power = np.zeros(BLOCK), np.zeros(BLOCK // 2)
            receive(quiet, ost.step, sample)
            transform(sample, power)
            graph.postcondition("floor is known", after=graph.task(add, power, floor))
        calibrator = programs.enter_context(graph.compile(machine))

        with ost.capture() as graph:
            block = ost.ring(*blocks)[0]
            graph.arrive(filled, after=graph.task(receive, recording, ost.step, block, after=graph.wait(emptied)))
        receiver = programs.enter_context(graph.compile(machine))

        for _ in range(BUFFERS):  # all are free: step k of the receiver waits for step k - BUFFERS of the analyser
            emptied.arrive()
        with ost.capture() as graph:
            block, power = ost.ring(*blocks)[0], ost.ring(*powers)[0]
            graph.arrive(emptied, after=graph.task(transform, block, power, after=graph.wait(filled)))
            graph.task(draw, power, floor, ost.step, picture, after=graph.precondition("floor is known"))
        analyser = programs.enter_context(graph.compile(machine))

        antenna_is_off = ost.UserEvent()
        calibration = calibrator.submit(QUIET, after=antenna_is_off)
        analysis = analyser.submit(len(picture), after=calibration.posts)
        reception = receiver.submit(len(picture))
        antenna_is_off.trigger()
        ost.merge(calibration, reception, analysis).wait()  # if one fails, the others are cancelled with their programs


def record(blocks: int) -> tuple[np.ndarray, ...]:
    """A quiet antenna; then a whistle that rises, and somebody who keys a steady tone."""
    count, rng = blocks * BLOCK, np.random.default_rng(7)
    t = np.arange(count) / count
    whistle = 0.05 * np.sin(2 * np.pi * count * (0.05 * t + 0.15 * t**2))
    tone = 0.04 * np.sin(2 * np.pi * count * 0.42 * t) * (np.sin(12 * np.pi * t) > 0)
    volts = rng.normal(0, 0.1, QUIET * BLOCK), rng.normal(0, 0.1, count) + whistle + tone
    return tuple((each * 2**15).astype(np.int16) for each in volts)


def show(picture: np.ndarray) -> None:
    for band in np.array_split(picture, min(24, len(picture))):
        levels = [cell.max() for cell in np.array_split(band, 96, axis=1)]
        print("".join(" .:-=+*#%@"[int(np.clip(level - 9, 0, 9))] for level in levels))


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--blocks", type=int, default=2000, help="length of the recording (default: %(default)s)")
    options = parser.parse_args(argv)
    quiet, recording = record(options.blocks)
    expected, picture = np.zeros((2, options.blocks, BLOCK // 2))
    start = time.perf_counter()
    plain_loop(quiet, recording, expected)
    between = time.perf_counter()
    linked(quiet, recording, picture)
    end = time.perf_counter()

    show(picture)
    equal = np.array_equal(picture, expected)
    print(f"plain loop {between - start:.2f} s, three programs {end - between:.2f} s, {options.blocks} blocks")
    print(f"pictures equal bit for bit: {'yes' if equal else 'NO'}")
    return 0 if equal else 1


if __name__ == "__main__":
    raise SystemExit(main())
