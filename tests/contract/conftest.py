"""Fixtures of the contract's tests.

Whatever waits does so for at most `PATIENCE` seconds; what hangs all the same is ended by pytest's watchdog, see
`faulthandler_timeout` in pyproject.toml.
"""

from __future__ import annotations

import importlib
import itertools
import os
import shutil
import subprocess
import sys
import textwrap
import threading
import time
import types
from contextlib import ExitStack
from pathlib import Path

import pytest

import measuring
import ostinato as ost
from ostinato.tune.worker import sampling

PATIENCE = 60  # seconds
_COUNT = itertools.count()


@pytest.fixture(scope="module", params=[1, 3], ids=["1 thread", "3 threads"])
def machine(request):
    with ost.Machine(cpus=request.param, gpus=0) as machine:
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


# Tuning


@pytest.fixture
def places(tmp_path, monkeypatch):
    """Leases and stores of the test's own; and what is measured in this process is so, however busy the host."""
    monkeypatch.setenv("OSTINATO_LEASE_DIR", str(tmp_path / "leases"))
    monkeypatch.setenv("OSTINATO_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setattr(sampling, "_MOST_PREEMPTED_IN_ALL", 1.0)


@pytest.fixture
def quick():
    """Measure little: what these tests look at are not times."""
    return ost.Policy(cache="warm", rel_ci=0.5, min_samples=3, max_seconds=0.05)


@pytest.fixture
def tuner(places, quick):
    """Make a tuner that is closed after the test."""
    with ExitStack() as stack:

        def make(devices=("sim:a",), **arguments):
            arguments = {"policy": quick, "progress": False, "timeout": 20} | arguments
            return stack.enter_context(ost.Tuner(devices, **arguments))

        yield make


@pytest.fixture
def module(tmp_path, monkeypatch):
    """Write a module that workers find; return its name."""
    folder = tmp_path / "modules"
    folder.mkdir()
    monkeypatch.syspath_prepend(folder)

    def write(source, name=None):
        name = name or f"candidates_{next(_COUNT)}"
        (folder / f"{name}.py").write_text(textwrap.dedent(source))
        return name

    return write


@pytest.fixture
def tasks(module, lines):
    """Write a module of tasks that workers find, and import it; see `measuring.PRELUDE`."""

    def write(source="", name=None):
        importlib.invalidate_caches()
        return importlib.import_module(module(f"LOG = {lines.path!r}\n{measuring.PRELUDE}{source}", name))

    return write


@pytest.fixture
def here(lines):
    """Make a module of tasks that workers do not find: what it declares is measured in this process."""

    def make(source=""):
        made = types.ModuleType(f"here_{next(_COUNT)}")
        exec(f"LOG = {lines.path!r}\n{measuring.PRELUDE}{source}", vars(made))
        return made

    return make


@pytest.fixture
def script(tmp_path):
    """Write an executable script of the shell; return its path."""

    def write(text, name=None, interpreter="/bin/sh"):
        path = tmp_path / (name or f"script_{next(_COUNT)}")
        path.write_text(f"#!{interpreter}\n{textwrap.dedent(text)}")
        path.chmod(0o755)
        return str(path)

    return write


@pytest.fixture
def program(script):
    """Write a Python program that starts fast; return the command line."""

    def write(text):
        prelude = (
            "import json, os, signal, sys, time\n"
            "def report(**fields):\n"
            "    os.write(int(os.environ['OSTINATO_REPORT_FD']), (json.dumps(fields) + '\\n').encode())\n"
        )
        return [sys.executable, "-S", "-E", script(prelude + textwrap.dedent(text), interpreter=sys.executable)]

    return write


@pytest.fixture
def compiled(tmp_path):
    """Compile a C program; return its path."""

    def make(source):
        compiler = os.environ.get("CC") or shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")
        if compiler is None:
            pytest.skip("no C compiler")
        path = tmp_path / f"program_{next(_COUNT)}"
        path.with_suffix(".c").write_text(textwrap.dedent(source))
        command = [compiler, "-O1", "-Wall", "-Werror", f"-I{ost.get_include()}", path.with_suffix(".c"), "-o", path]
        subprocess.run(command, check=True)
        return str(path)

    return make


@pytest.fixture
def lines(tmp_path):
    """Name a file that candidates append lines to, and read it."""

    class Lines:
        path = str(tmp_path / "lines.txt")

        def __call__(self):
            return Path(self.path).read_text().splitlines() if Path(self.path).exists() else []

    return Lines()


@pytest.fixture
def user(places, tmp_path):
    """Run a Python script as a process of its own, in a session of its own; all of it is killed after the test."""
    processes = []

    def start(source, *arguments):
        path = tmp_path / f"user_{next(_COUNT)}.py"
        path.write_text(textwrap.dedent(source))
        environment = os.environ | {"PYTHONPATH": os.pathsep.join(p for p in sys.path if p)}
        processes.append(
            subprocess.Popen(
                [sys.executable, path, *map(str, arguments)],
                env=environment,
                text=True,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                start_new_session=True,
            )
        )
        return processes[-1]

    yield start
    for process in processes:
        if process.poll() is None:
            process.kill()
        process.communicate(timeout=PATIENCE)


@pytest.fixture(scope="session")
def alive():
    """Tell whether a process is there, zombies not counted."""

    def tell(pid):
        try:
            state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
        except (FileNotFoundError, ProcessLookupError):
            return False
        return state not in "ZX"

    return tell
