"""Fixtures of the contract's tests.

Whatever waits does so for at most `PATIENCE` seconds; what hangs all the same is ended by pytest's watchdog, see
`faulthandler_timeout` in pyproject.toml.
"""

from __future__ import annotations

import threading
import time

import pytest

import ostinato as ost

PATIENCE = 60  # seconds


@pytest.fixture(scope="module", params=[1, 3], ids=["1 thread", "3 threads"])
def machine(request):
    with ost.Machine(cpus=request.param) as machine:
        yield machine


@pytest.fixture(scope="session")
def eventually():
    """Wait until something becomes true, and return it."""

    def wait(condition):
        deadline = time.monotonic() + PATIENCE
        while not (found := condition()):
            assert time.monotonic() < deadline, "it never became true"
            time.sleep(0.001)
        return found

    return wait


@pytest.fixture(scope="session")
def in_threads():
    """Call functions, each in a thread of its own, and raise what one of them raised."""

    def call(*functions):
        errors = []

        def run(function):
            try:
                function()
            except BaseException as error:
                errors.append(error)

        threads = [threading.Thread(target=run, args=(function,), daemon=True) for function in functions]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(PATIENCE)
        assert not any(thread.is_alive() for thread in threads), "a thread never ended"
        if errors:
            raise errors[0]

    return call


@pytest.fixture(scope="session")
def causes():
    """List an exception and what caused it, and so on."""

    def chain(error):
        found = []
        while error is not None and error not in found:
            found.append(error)
            error = error.__cause__
        return found

    return chain
