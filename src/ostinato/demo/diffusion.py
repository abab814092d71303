"""Diffusion in strips: the kernels of the demo, and the step that calls them."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

import numba
import numpy as np

import ostinato as ost
from ostinato.demo.photograph import Picture
from ostinato.graph.kernel import Kernel
from ostinato.graph.variant import Variant

RATE = np.float32(0.2)
FIDELITY = np.float32(0.02)
SHARPNESS = np.float32(1 / 0.004**2)  # a difference well above 0.004 is an edge
ONE, FOUR = np.float32(1), np.float32(4)


@numba.njit  # type: ignore[untyped-decorator]
def flow_along(red: Any, green: Any, blue: Any) -> Any:
    """Return what part of these differences flows between two pixels."""
    # Unlike `/`, np.divide raises nothing, so that processors may do several at once.
    return np.divide(ONE, np.sqrt(ONE + SHARPNESS * (red * red + green * green + blue * blue)))


@numba.njit  # type: ignore[untyped-decorator]
def keep_ends(old: Any, new: Any) -> None:
    """Copy the first and the last pixel of a row."""
    for plane in range(3):
        new[plane, 0], new[plane, -1] = old[plane, 0], old[plane, -1]


@ost.kernel
def diffuse(source: ost.Read, noisy: ost.Read, target: ost.Write) -> None:
    """Take one step of one strip, pixel by pixel: what one writes first, and what the others are compared with."""
    height, _, width = target.shape
    for y in range(height):
        for x in range(1, width - 1):
            red, green, blue = source[y + 1, 0, x], source[y + 1, 1, x], source[y + 1, 2, x]
            to_red = FIDELITY * (noisy[y, 0, x] - red)
            to_green = FIDELITY * (noisy[y, 1, x] - green)
            to_blue = FIDELITY * (noisy[y, 2, x] - blue)
            for dy, dx in ((0, 0), (2, 0), (1, -1), (1, 1)):
                d_red = source[y + dy, 0, x + dx] - red
                d_green = source[y + dy, 1, x + dx] - green
                d_blue = source[y + dy, 2, x + dx] - blue
                flow = ONE / np.sqrt(ONE + SHARPNESS * (d_red * d_red + d_green * d_green + d_blue * d_blue))
                to_red += flow * d_red
                to_green += flow * d_green
                to_blue += flow * d_blue
            target[y, 0, x] = red + RATE * to_red
            target[y, 1, x] = green + RATE * to_green
            target[y, 2, x] = blue + RATE * to_blue
        keep_ends(source[y + 1], target[y])


@diffuse.variant(name="blocks", config={"columns": 512})
@diffuse.variant(name="blocks", config={"columns": 128})
@diffuse.variant(name="blocks", config={"columns": 32})
@ost.kernel
def diffuse_blocks(source: ost.Read, noisy: ost.Read, target: ost.Write, columns: int) -> None:
    """Take the step for `columns` pixels at a time, in loops that are simple enough for vector instructions."""
    height, _, width = target.shape
    change = np.empty((3, columns), np.float32)
    flow = np.empty(columns, np.float32)
    for y in range(height):
        for left in range(1, width - 1, columns):
            count = min(columns, width - 1 - left)
            centre, noise, new = source[y + 1], noisy[y], target[y]
            for plane in range(3):
                near, original, sums = centre[plane, left:], noise[plane, left:], change[plane]
                for x in range(count):
                    sums[x] = FIDELITY * (original[x] - near[x])
            for neighbour in range(4):
                dy, dx = (0, 2, 1, 1)[neighbour], (0, 0, -1, 1)[neighbour]
                far, beside = source[y + dy], left + dx
                red, green, blue = centre[0, left:], centre[1, left:], centre[2, left:]
                far_red, far_green, far_blue = far[0, beside:], far[1, beside:], far[2, beside:]
                for x in range(count):
                    flow[x] = flow_along(far_red[x] - red[x], far_green[x] - green[x], far_blue[x] - blue[x])
                for plane in range(3):
                    near, other, sums = centre[plane, left:], far[plane, beside:], change[plane]
                    for x in range(count):
                        sums[x] += flow[x] * (other[x] - near[x])
            for plane in range(3):
                near, sums, out = centre[plane, left:], change[plane], new[plane, left:]
                for x in range(count):
                    out[x] = near[x] + RATE * sums[x]
        keep_ends(source[y + 1], target[y])


@numba.njit  # type: ignore[untyped-decorator]
def flow_to(near: Any, step: int, flows: Any, width: int, quotient: int) -> None:
    """Compute what flows to each pixel from the one `step` further on; planes lie behind each other."""
    far, green, blue = near[step:], flows[width:], flows[2 * width :]
    for x in range(flows.size):
        flows[x] = far[x] - near[x]
    if quotient:
        for x in range(blue.size):
            root = np.sqrt(ONE + SHARPNESS * (flows[x] * flows[x] + green[x] * green[x] + blue[x] * blue[x]))
            flows[x] = np.divide(flows[x], root)
            green[x] = np.divide(green[x], root)
            blue[x] = np.divide(blue[x], root)
    else:
        for x in range(blue.size):
            flow = flow_along(flows[x], green[x], blue[x])
            flows[x] *= flow
            green[x] *= flow
            blue[x] *= flow


@diffuse.variant(
    name="pairs", config={"quotient": 1}
)  # rounds once less, so that its bits differ: fast, and never chosen
@diffuse.variant(name="pairs", config={"quotient": 0})
@ost.kernel
def diffuse_pairs(source: ost.Read, noisy: ost.Read, target: ost.Write, quotient: int) -> None:
    """Take the step with each flow computed once: what a pixel gains by it, its neighbour loses."""
    height, _, width = target.shape
    row = 3 * width
    above, below = np.empty(row, np.float32), np.empty(row, np.float32)
    across = np.zeros(row + 1, np.float32)
    left, right = across, across[1:]
    pixels, noises, out = source.reshape(-1), noisy.reshape(-1), target.reshape(-1)
    flow_to(pixels, row, below, width, quotient)
    for y in range(height):
        centre, noise, new = pixels[(y + 1) * row :], noises[y * row :], out[y * row :]
        above, below = below, above
        flow_to(centre, row, below, width, quotient)
        flow_to(centre, 1, right[: row - 1], width, quotient)
        for x in range(row):
            change = FIDELITY * (noise[x] - centre[x]) - above[x] + below[x] - left[x] + right[x]
            new[x] = centre[x] + RATE * change
        keep_ends(source[y + 1], target[y])


@diffuse.variant(name="numpy")
@ost.task
def diffuse_strip(source: ost.Read, noisy: ost.Read, target: ost.Write) -> None:
    """Take the step with NumPy."""
    centre = source[1:-1, :, 1:-1]
    change = FIDELITY * (noisy[:, :, 1:-1] - centre)
    for far in (source[:-2, :, 1:-1], source[2:, :, 1:-1], source[1:-1, :, :-2], source[1:-1, :, 2:]):
        difference = far - centre
        slope = (difference * difference).sum(axis=1, keepdims=True)
        change += ONE / np.sqrt(ONE + SHARPNESS * slope) * difference
    target[...] = source[1:-1]
    target[:, :, 1:-1] += RATE * change


@ost.kernel
def blur(source: ost.Read, noisy: ost.Read, target: ost.Write) -> None:
    """Take one step in which as much flows as pixels differ: noise is levelled, and so are edges."""
    height, planes, width = target.shape
    for y in range(height):
        for plane in range(planes):
            above, below = source[y, plane, 1:], source[y + 2, plane, 1:]
            left, centre, right = source[y + 1, plane], source[y + 1, plane, 1:], source[y + 1, plane, 2:]
            noise, new = noisy[y, plane, 1:], target[y, plane, 1:]
            for x in range(width - 2):
                around = above[x] + below[x] + left[x] + right[x] - FOUR * centre[x]
                new[x] = centre[x] + RATE * (FIDELITY * (noise[x] - centre[x]) + around)
        keep_ends(source[y + 1], target[y])


class Method(NamedTuple):
    """A way to take a step: the task that a step calls, what a plain loop calls, and what both are given."""

    name: str
    task: Callable[..., Any]
    function: Callable[..., Any]
    passed: Mapping[str, Any] = {}


def method_of(variant: Variant) -> Method:
    """Return the way that a variant of a kernel is."""
    task: Any = variant.task
    function = numba.njit(nogil=True)(task.function) if isinstance(task, Kernel) else task.function
    return Method(variant.label, task, function, variant.passed)


NATIVE = method_of(Variant(diffuse, diffuse.name))
BLUR = method_of(Variant(blur, blur.name))


class Strip(NamedTuple):
    """Which rows of a field a strip is, and which it needs of the field before."""

    inner: slice
    halo: slice


def strips(rows: int, count: int) -> list[Strip]:
    """Cut so many rows into `count` strips, or as many as there are rows; a frame of one row is around them."""
    ends = np.linspace(1, rows + 1, min(count, rows) + 1).astype(int).tolist()
    return [Strip(slice(y0, y1), slice(y0 - 1, y1 + 1)) for y0, y1 in itertools.pairwise(ends)]


class Diffusion:
    """A noisy photograph and the two fields that take turns; their one-pixel frames stay as they are.

    In a field the planes of a row lie behind each other, so that a strip is one piece of memory.
    """

    def __init__(self, noisy: Picture, count: int) -> None:
        framed = np.pad(noisy, ((0, 0), (1, 1), (1, 1)), mode="edge")
        self.noisy = np.ascontiguousarray(framed.transpose(1, 0, 2))
        self.strips = strips(noisy.shape[1], count)
        self.fields = self.noisy.copy(), self.noisy.copy()

    def calls(self, source: Any, target: Any) -> list[tuple[Any, Any, Any]]:
        """List the arguments of one step, strip by strip: arrays, or elements of a ring."""
        return [(source[strip.halo], self.noisy[strip.inner], target[strip.inner]) for strip in self.strips]

    def step(self, method: Method) -> None:
        """Take one step, in a function that is being compiled."""
        field = ost.ring(*self.fields)
        for arguments in self.calls(field[0], field[1]):
            method.task(*arguments, **method.passed)

    def result(self, steps: int) -> Picture:
        """Return the picture as it is after `steps` steps."""
        return np.ascontiguousarray(self.fields[steps % 2][1:-1, :, 1:-1].transpose(1, 0, 2))


class Scene:
    """What one step does: some methods, one after the other, each on all strips of its own copy of a photograph."""

    def __init__(self, noisy: Picture, count: int, methods: Sequence[Method]) -> None:
        self.parts = [(method, Diffusion(noisy, count)) for method in methods]

    @property
    def tasks(self) -> int:
        """How many strips a step has."""
        return sum(len(diffusion.strips) for _, diffusion in self.parts)

    def step(self) -> None:
        """Take one step, in a function that is being compiled."""
        for method, diffusion in self.parts:
            diffusion.step(method)

    def calls(self, step: int) -> list[tuple[Callable[..., Any], tuple[Any, ...]]]:
        """List what a plain loop calls in a step: functions with their arguments."""
        found: list[tuple[Callable[..., Any], tuple[Any, ...]]] = []
        for method, diffusion in self.parts:
            source, target = diffusion.fields[step % 2], diffusion.fields[(step + 1) % 2]
            function = partial(method.function, **method.passed) if method.passed else method.function
            found += [(function, arguments) for arguments in diffusion.calls(source, target)]
        return found

    def result(self, steps: int) -> Picture:
        """Return the pictures as they are after `steps` steps, one below the other."""
        return np.concatenate([diffusion.result(steps) for _, diffusion in self.parts], axis=1)
