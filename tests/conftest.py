"""Settings for all tests. The watchdog over hangs is pytest's own: `faulthandler_timeout` in pyproject.toml."""

import gc
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Generator, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings

import ostinato as ost
from ostinato.tune.graphs import cost_store, tune_graph

ROOT = Path(__file__).parents[1]

# Processes that tests start import what the tests import.
_PATHS = [str(ROOT / "tests" / folder) for folder in ("", "unit", "support")]
os.environ["PYTHONPATH"] = os.pathsep.join([*_PATHS, *filter(None, [os.environ.get("PYTHONPATH")])])

# No test asserts a time, so hypothesis must not either: machines are shared and slow ones exist.
settings.register_profile("default", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("ci", settings.get_profile("default"), print_blob=True)
settings.load_profile("ci" if os.environ.get("CI") else "default")

# What a shell starts in the background ignores Ctrl-C, and so do its children; tests of Ctrl-C would wait for ever.
signal.signal(signal.SIGINT, signal.default_int_handler)


def _encodable(data: Any) -> Any:
    """Return a copy of a report in which lone surrogates are escaped."""
    if isinstance(data, str):
        return data.encode("utf-8", "backslashreplace").decode()
    if isinstance(data, dict):
        return {_encodable(key): _encodable(value) for key, value in data.items()}
    return type(data)(map(_encodable, data)) if isinstance(data, list | tuple) else data


@pytest.hookimpl(wrapper=True)
def pytest_report_to_serializable() -> Generator[None, Any, Any]:
    """Let every report reach pytest-xdist: it ends the whole run if a test has logged what UTF-8 cannot encode."""
    return _encodable((yield))


@pytest.fixture(autouse=True, scope="session")
def _own_directories(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """What the user's own store knows must not decide how tests' programs are compiled, nor the other way round.

    And nobody waits for devices that tests of another process lease.
    """
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("OSTINATO_CACHE_DIR", str(tmp_path_factory.mktemp("cache")))
        patch.setenv("OSTINATO_LEASE_DIR", str(tmp_path_factory.mktemp("leases")))
        # Nor must what one test's replays have taught decide how another's programs are compiled.
        patch.setattr("ostinato.runtime.adapt.remember_ops", lambda ops, costs: None)
        yield


@pytest.fixture(autouse=True, scope="module")
def _no_garbage_of_others() -> None:
    """What pytest and other modules hold is no garbage: to look at all of it takes a third of a second each time."""
    gc.collect()
    gc.freeze()


@pytest.fixture(scope="session")
def mypy() -> Callable[[Path], str]:
    """Check a file as strictly as the project; what `make lint` has read, NumPy's stubs first, is not read again."""
    pytest.importorskip("mypy")

    def output(file: Path) -> str:
        command = [sys.executable, "-m", "mypy", "--strict", str(file)]
        return subprocess.run(command, capture_output=True, text=True, cwd=ROOT, timeout=100).stdout

    return output


@pytest.fixture
def measures_little(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let what tunes graphs take few samples."""
    little = ost.Policy(rel_ci=0.5, min_samples=3, max_seconds=0.05)
    for module in (cost_store, tune_graph):
        monkeypatch.setattr(module, "POLICY", little)
