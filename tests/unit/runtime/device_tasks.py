"""Tasks for fake devices."""

from __future__ import annotations

import numpy as np

import ostinato as ost
from support import fake_device as fake


@ost.task
def scale(stream: ost.Stream, src: ost.Read, dst: ost.Write, factor=2.0):
    fake.launch(stream, lambda a, b: np.multiply(a, factor, out=b), src, dst)


@ost.task
def add(stream: ost.Stream, x: ost.ReadWrite, y: ost.Read):
    fake.launch(stream, lambda a, b: np.add(a, b, out=a), x, y)


@ost.task
def put(stream: ost.Stream, x: ost.Write, value):
    fake.launch(stream, lambda a: np.copyto(a, value), x)


@ost.task
def fail(stream: ost.Stream, x: ost.ReadWrite):
    def broken(_):
        raise ArithmeticError("no such number")

    fake.launch(stream, broken, x)


@ost.task
def raise_at_issue(stream: ost.Stream, x: ost.ReadWrite):
    raise ArithmeticError("cannot be enqueued")


@ost.task
def host_put(x: ost.Write, value):
    x[...] = value


@ost.task
def host_add(x: ost.ReadWrite, y: ost.Read):
    x += y


@ost.task
def host_scale(src: ost.Read, dst: ost.Write, factor=2.0):
    np.multiply(src, factor, out=dst)
