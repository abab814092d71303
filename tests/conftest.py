"""Settings for all tests. The watchdog over hangs is pytest's own: `faulthandler_timeout` in pyproject.toml."""

import os
from collections.abc import Iterator

import pytest
from hypothesis import HealthCheck, settings

# No test asserts a time, so hypothesis must not either: machines are shared and slow ones exist.
settings.register_profile("default", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("ci", settings.get_profile("default"), print_blob=True)
settings.load_profile("ci" if os.environ.get("CI") else "default")


@pytest.fixture(autouse=True, scope="session")
def _own_cache_directory(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """What the user's own store knows must not decide how tests' programs are compiled, nor the other way round."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("OSTINATO_CACHE_DIR", str(tmp_path_factory.mktemp("cache")))
        yield
