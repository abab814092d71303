"""What the environment of the process says: usable cores, where files are kept, where headers are."""

from __future__ import annotations

import ctypes
import math
import os
import re
from contextlib import suppress
from importlib.util import find_spec

ACTIVITY_PIPE = "OSTINATO_ACTIVITY"
"""The variable by which ``ostinato top`` tells a script the number of the pipe to write to."""


_part: tuple[list[int], bool] | None = None  # of the cores, and whether other ranks use them, too


def use_cores(cores: list[int], shared: bool) -> None:
    """Have machines made from now on use these of the usable cores; if `shared`, other processes use these, too."""
    global _part
    _part = cores, shared


def cores_are_shared() -> bool:
    """Whether other ranks use the cores of this one, so that polling takes their time."""
    return _part is not None and _part[1]


def usable_cores() -> list[int]:
    """Return the cores of the affinity mask, as many as the control group's quota pays for.

    If an OpenMP library has bound this thread to a part of the mask (``OMP_PROC_BIND``), its places are the mask. Where
    several ranks of a program share the host, each has a part of the cores (`use_cores`).

    Examples
    --------
    >>> len(usable_cores()) >= 1
    True
    """
    if _part is not None:
        return list(_part[0])
    cores = sorted(os.sched_getaffinity(0) | _openmp_cores())
    quota = _quota("/sys/fs/cgroup")
    return cores if quota is None else cores[: max(1, min(len(cores), math.ceil(quota)))]


def _openmp_cores() -> set[int]:
    """Return the cores of the places of OpenMP libraries in this process that bind threads."""
    if os.environ.get("OMP_PROC_BIND", "false").lower() == "false":
        return set()
    cores: set[int] = set()
    mapped = _read("/proc/self/maps")
    for path in set(re.findall(r"/.*/(?:libgomp|libi?omp5?)\b[^/\n]*\.so[.\d]*$", mapped, re.MULTILINE)):
        library = ctypes.CDLL(path)
        for place in range(library.omp_get_num_places()):
            numbers = (ctypes.c_int * library.omp_get_place_num_procs(place))()
            library.omp_get_place_proc_ids(place, numbers)
            cores.update(numbers)
    return cores


def _quota(root: str | os.PathLike[str]) -> float | None:
    """Return how many cores' worth of time the control group gets; None for no limit."""
    try:
        limit, period = _read(root, "cpu.max").split()
        return None if limit == "max" else int(limit) / int(period)
    except (OSError, ValueError):
        pass
    try:
        micros = int(_read(root, "cpu/cpu.cfs_quota_us"))
        return None if micros < 0 else micros / int(_read(root, "cpu/cpu.cfs_period_us"))
    except (OSError, ValueError):
        return None


def spare_memory(root: str | os.PathLike[str] = "/") -> int | None:
    """Return how many bytes the kernel and the control group have available; None if neither tells."""
    found, group = [], os.path.join(root, "sys/fs/cgroup")
    with suppress(OSError):
        said = re.search(r"^MemAvailable:\s*(\d+)", _read(root, "proc/meminfo"), re.MULTILINE)
        found += [int(said[1]) << 10] if said else []
    for most, taken in (
        ("memory/memory.limit_in_bytes", "memory/memory.usage_in_bytes"),
        ("memory.max", "memory.current"),
    ):
        with suppress(OSError, ValueError):  # there is no such group, or its limit is "max"
            found.append(max(0, int(_read(group, most)) - int(_read(group, taken))))
    return min(found, default=None)


def _read(*path: str | os.PathLike[str]) -> str:
    with open(os.path.join(*path)) as file:
        return file.read()


def cache_bytes() -> int:
    """Return how much of the largest cache of the first core is each core's that shares it; 0 where nobody says.

    Examples
    --------
    >>> cache_bytes() >= 0
    True
    """
    caches, largest = "/sys/devices/system/cpu/cpu0/cache", 0
    for name in os.listdir(caches) if os.path.isdir(caches) else ():
        with suppress(OSError, ValueError):  # the directory has entries that are no caches, without a type
            if _read(caches, name, "type").strip() != "Instruction":
                size = _read(caches, name, "size").strip()
                sharing = _count_cores(_read(caches, name, "shared_cpu_list").strip())
                largest = max(largest, int(size.removesuffix("K")) * 1024 // sharing)
    return largest


def _count_cores(ranges: str) -> int:
    """Return how many cores a list such as ``0-3,8`` names."""
    ends = (each.split("-") for each in ranges.split(","))
    return sum(int(last[-1]) - int(last[0]) + 1 for last in ends)


def get_include() -> str:
    """Return the directory that holds ``ostinato.h`` and ``ostinato_report.h``.

    Examples
    --------
    >>> import os
    >>> os.path.exists(os.path.join(get_include(), "ostinato.h"))
    True
    """
    import ostinato

    directories = list(ostinato.__path__)
    core = find_spec("ostinato._core")
    if core is not None:  # an editable installation keeps the headers beside the compiled module
        directories.append(os.path.dirname(core.origin or ""))
    for directory in directories:
        include = os.path.join(directory, "include")
        if os.path.isfile(os.path.join(include, "ostinato.h")):
            return include
    raise FileNotFoundError("ostinato.h is not installed beside the package; install Ostinato again")


def cache_directory() -> str:
    """Return the directory that ``OSTINATO_CACHE_DIR`` names, or ``ostinato`` in the user's cache directory.

    It need not exist.

    Examples
    --------
    >>> os.path.isabs(cache_directory())
    True
    """
    chosen = os.environ.get("OSTINATO_CACHE_DIR")
    if chosen:
        return os.path.abspath(chosen)
    cache = os.environ.get("XDG_CACHE_HOME", "")
    return os.path.join(cache if os.path.isabs(cache) else os.path.expanduser("~/.cache"), "ostinato")


def default_store() -> str:
    """Return the path of the store in the cache directory; there need not be one."""
    return os.path.join(cache_directory(), "tune.db")
