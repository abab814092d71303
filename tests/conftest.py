"""Settings for all tests. The watchdog over hangs is pytest's own: `faulthandler_timeout` in pyproject.toml."""

import os

from hypothesis import HealthCheck, settings

# No test asserts a time, so hypothesis must not either: machines are shared and slow ones exist.
settings.register_profile("default", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("ci", settings.get_profile("default"), print_blob=True)
settings.load_profile("ci" if os.environ.get("CI") else "default")
