"""What a stored result depends on: operation, code, device, versions, policy."""

from __future__ import annotations

import hashlib
import importlib
import os
import platform
import re
import shutil
import stat
import sys
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import cache
from importlib.machinery import ModuleSpec
from typing import Any

from ostinato.tune.candidate import Call, Candidate, Command, canonical, digest
from ostinato.tune.leases.device import Device
from ostinato.tune.store.database import Context

_LIBRARIES = (
    "cuda-bindings",
    "cupy",
    "cupy-cuda12x",
    "cupy-cuda13x",
    "jax",
    "jaxlib",
    "llvmlite",
    "numba",
    "numba-cuda",
    "numpy",
    "nvidia-cutlass-dsl",
    "ostinato",
    "scipy",
    "torch",
    "triton",
)
"""Libraries that compile or compute, so that another version of one may give other times; and the one that measures."""


def versions() -> dict[str, str]:
    """Return the version of Python and of each installed library that may change what a candidate does.

    Nothing is imported to find out.
    """
    return dict(_installed())


@cache
def _installed() -> dict[str, str]:
    found = _named()
    for name in _LIBRARIES:
        if found.get(name) == "":
            from importlib import metadata

            try:
                found[name] = metadata.version(name)
            except metadata.PackageNotFoundError:
                del found[name]
    return {**dict(sorted(found.items())), "python": f"{platform.python_implementation()} {platform.python_version()}"}


def _named() -> dict[str, str]:
    """Return the versions that the names of installed libraries' metadata say; an empty one where that does not.

    `importlib.metadata` would read all that metadata, and takes longer to import than anything else that finding what
    was tuned needs.
    """
    wanted = {name.replace("-", "_"): name for name in _LIBRARIES}
    found: dict[str, str] = {}
    for folder in sys.path:
        here: dict[str, str] = {}
        with suppress(OSError):
            for entry in os.listdir(folder or "."):
                stem, ending = os.path.splitext(entry)
                if ending not in (".dist-info", ".egg-info"):
                    continue
                name, _, version = stem.partition("-")
                library = wanted.get(re.sub(r"[-_.]+", "_", name).lower())
                if library is not None:
                    plain = ending == ".dist-info" and version and library not in here
                    here[library] = version if plain else ""
        found = {**here, **found}
    return found


_SETTLED = 100_000_000  # ns: a file changed less than this ago may change again without its times telling

_Signature = tuple[int, ...]
_contents: dict[str, tuple[_Signature, str]] = {}  # by path; for all searches of the process


class Sources:
    """What the candidates of one search stand for.

    Nothing is imported: a module is looked up the way `import` would, and its file is read. Files are read once as
    long as they stay the same, but looked at for each candidate.
    """

    def __init__(self, verify: str | None = None) -> None:
        self._verify = verify
        self._places: dict[str, str | None] = {}  # where modules and programs are
        self._digests: dict[tuple[tuple[str, str], ...], str] = {}
        self._imported: dict[tuple[tuple[str, str], ...], dict[str, str]] = {}

    def of(self, candidate: Candidate) -> str:
        """Return the digest of what a candidate stands for.

        Of a callable that is the modules of its functions and its `source` files. Of a command it is its program, as
        found along PATH, and every file that an argument names (all of it, or what follows its first ``=``), and the
        same of its build. What a build makes is not there before the first build, so the digest under which a result
        is stored is to be taken after it.
        """
        parts = tuple(self._parts(candidate))
        found = self._digests.get(parts)
        if found is None:
            found = self._digests[parts] = digest([list(part) for part in parts])
        return found

    def imported(self, candidate: Candidate) -> Mapping[str, str]:
        """Return digests, by name, of what a worker keeps once it has run the candidate: it is stale if one changes.

        Equal ones are the same object.
        """
        parts = []
        if isinstance(candidate, Call):
            functions = candidate.factory, candidate.prepare, candidate.setup, self._verify
            parts = [("module " + name, self._module(name)) for name in _modules(functions)]
            parts += [("file " + path, _required(path, candidate)) for path in candidate.source]
        elif self._verify is not None:
            parts = [("module " + name, self._module(name)) for name in _modules((self._verify,))]
        return self._imported.setdefault(tuple(parts), dict(parts))

    def places(self, candidate: Candidate) -> Iterator[str]:
        """Yield what a candidate stands for, in words: modules with their files, files, and the program."""
        for name, content in self._parts(candidate):
            kind, _, rest = name.partition(" ")
            if kind == "module":
                yield f"the module {rest} in {self._places.get(rest)}" if content != "none" else f"no module {rest}"
            elif kind == "file":
                yield f"the file {rest}"
            elif kind == "program" and isinstance(candidate, Command):
                yield f"the program {candidate.words[0]}" if content != "none" else f"no program {candidate.words[0]}"

    def _parts(self, candidate: Candidate) -> Iterator[tuple[str, str]]:
        if self._verify is not None:
            yield "verify", self._verify
        yield from self.imported(candidate).items()
        if isinstance(candidate, Command):
            yield from self._words(candidate, candidate.words)
            if candidate.build is not None:
                yield from self._words(candidate, candidate.filled(candidate.build, "{scratch}"))

    def _words(self, candidate: Command, words: tuple[str, ...]) -> Iterator[tuple[str, str]]:
        directory = candidate.cwd or "."
        path = candidate.env.get("PATH", os.environ.get("PATH", os.defpath))
        program = self._program(words[0], path)
        if program is not None:
            yield "program", _content(os.path.join(directory, program)) or "none"
        for word in words[1:]:
            name = word
            found = _content(os.path.join(directory, name))
            if found is None and "=" in word:
                name = word.partition("=")[2]
                found = _content(os.path.join(directory, name))
            if found is not None:
                yield "file " + name, found

    def _program(self, word: str, path: str) -> str | None:
        if os.sep in word:
            return word
        name = f"{word}\0{path}"
        if name not in self._places:
            self._places[name] = shutil.which(word, path=path)
        return self._places[name]

    def _module(self, name: str) -> str:
        if name not in self._places:
            self._places[name] = _place(name)
        place = self._places[name]
        return "none" if place is None else _content(place) or "none"


def _modules(functions: tuple[str | None, ...]) -> list[str]:
    """Return the modules that functions are in, each once."""
    return list(dict.fromkeys(function.partition(":")[0] for function in functions if function is not None))


def _place(module: str) -> str | None:
    """Return the file of a module, as a worker would find it; None for one that is built in, or nowhere."""
    spec = _found(module)
    if spec is None:
        importlib.invalidate_caches()  # it may have been written since its directory was read
        spec = _found(module)
    place = None if spec is None or not spec.has_location else spec.origin
    while place and not os.path.exists(place) and place != os.path.dirname(place):
        place = os.path.dirname(place)  # inside an archive
    return place


def _found(module: str) -> ModuleSpec | None:
    """Find a module without importing the packages that it is in."""
    spec: ModuleSpec | None = None
    names = module.split(".")
    for count in range(1, len(names) + 1):
        where = None if spec is None else spec.submodule_search_locations
        if count > 1 and where is None:
            return None
        name = ".".join(names[:count])
        found = (finder.find_spec(name, where) for finder in sys.meta_path if hasattr(finder, "find_spec"))
        spec = next((one for one in found if one is not None), None)
        if spec is None:
            return None
    return spec


def _required(path: str, candidate: Call) -> str:
    found = _content(path)
    if found is None:
        raise FileNotFoundError(f"source of {candidate.factory} must be a file, got {path!r}")
    return found


def _content(path: str) -> str | None:
    """Return the digest of a file's contents; None if there is no such regular file."""
    try:
        status = os.stat(path)
    except (OSError, ValueError):
        return None
    if not stat.S_ISREG(status.st_mode):
        return None
    if not status.st_size:
        return "empty"  # or made up by the kernel when it is read, as in /proc: different each time, or without end
    signature = (status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns)
    path = os.path.abspath(path)
    known = _contents.get(path)
    if known is not None and known[0] == signature:
        return known[1]
    try:
        with open(path, "rb") as file:
            found = hashlib.file_digest(file, "sha256").hexdigest()[:32]
    except OSError:
        return f"unreadable {status.st_size} {status.st_mtime_ns}"  # a program that may only be executed
    if time.time_ns() - max(status.st_mtime_ns, status.st_ctime_ns) > _SETTLED:
        _contents[path] = signature, found
    return found


_ORDER = ("source", "device", "driver", "versions", "policy", "key")
"""The fields that a miss names, the first of several that differ. Operation and configuration are what it asks for."""


def environment(devices: Sequence[Device]) -> dict[str, Any]:
    """Return what results on these devices hold for, as `Report.environment` and `contexts` have it."""
    return {
        "devices": {device.name: {"model": device.model, "driver": device.driver} for device in devices},
        "versions": versions(),
    }


def contexts(op: str, key: object, environment: Mapping[str, Any], policy: object) -> dict[str, Context]:
    """Return the context of each device of an environment, by the device's name."""
    shared = canonical(op), canonical(key)
    rest = canonical(environment["versions"]), canonical(policy)
    return {
        name: Context(*shared, canonical(device["model"]), canonical(device["driver"]), *rest)
        for name, device in environment["devices"].items()
    }


def differing(stored: Context, asked: Context) -> frozenset[str]:
    """Return the names of the fields that differ."""
    return frozenset(name for name, one, other in zip(Context._fields, stored, asked, strict=True) if one != other)


def miss(differences: Iterable[frozenset[str]]) -> str | None:
    """Say which field kept stored results from answering."""
    named = [sorted(_ORDER.index(name) for name in fields) for fields in differences if fields]
    return _ORDER[min(named, key=lambda places: (len(places), places))[0]] if named else None
