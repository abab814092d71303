"""Photographs that are diffused in strips, and the ways to take a step."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

import numba
import numpy as np

import ostinato as ost
from ostinato.demo.kernels import blur, diffuse
from ostinato.demo.photograph import Picture
from ostinato.graph.kernel import Kernel
from ostinato.graph.variant import Variant

__all__ = ["BLUR", "NATIVE", "Diffusion", "Method", "Scene", "method_of", "strips"]


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
