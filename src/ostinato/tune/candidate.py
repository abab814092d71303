"""Candidates: what is measured."""

from __future__ import annotations

import hashlib
import json
import math
import os
import re
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from string import Formatter
from typing import TYPE_CHECKING, Any

from ostinato.environment import get_include
from ostinato.text import brief
from ostinato.tune.policy import positive, whole

if TYPE_CHECKING or sys.version_info >= (3, 12):
    from functools import cached_property
else:

    class cached_property:
        """That of Python 3.12, which takes no lock."""

        def __init__(self, function):
            self._function = function

        def __set_name__(self, owner, name):
            self._name = name

        def __get__(self, instance, owner=None):
            found = instance.__dict__[self._name] = self._function(instance)
            return found


def _new_encoder() -> Callable[[object], str]:
    """Return what encodes as `json.JSONEncoder` does, which makes an encoder in C for each value."""
    encoder = json.JSONEncoder(sort_keys=True, separators=(",", ":"))
    make = getattr(json.encoder, "c_make_encoder", None)
    if make is None:
        return encoder.encode
    quote = json.encoder.encode_basestring_ascii
    parts = make(None, encoder.default, quote, None, ":", ",", True, False, True)
    return lambda value: "".join(parts(value, 0))


_encode = _new_encoder()


def plain(value: object, what: str) -> Any:
    """Return a copy of `value` as JSON has it: tuples become lists, NumPy scalars and enums what they stand for."""
    try:
        return _plain(value, what)
    except RecursionError:
        raise ValueError(f"{what} holds itself, or is nested too deeply") from None


def _plain(value: object, what: str) -> Any:
    if value is None or isinstance(value, bool):
        return value
    # Subclasses, such as enums and NumPy's float64, would print as something else than what JSON makes of them.
    if isinstance(value, str):
        return str.__str__(value)
    if isinstance(value, int):
        return int.__index__(value)
    if isinstance(value, float):
        if not math.isfinite(value):
            raise ValueError(
                f"{what} must be a value that JSON has a form for, got {value!r}; say None, or a word of your own"
            )
        return float.__float__(value)
    if isinstance(value, Mapping):
        for key in value:
            if not isinstance(key, str):
                raise TypeError(f"{what}: names must be str, got {key!r}")
        return {str.__str__(key): _plain(item, f"{what}[{key!r}]") for key, item in value.items()}
    if isinstance(value, Sequence) and not isinstance(value, bytes | bytearray | memoryview):
        return [_plain(item, f"{what}[{index}]") for index, item in enumerate(value)]
    scalar = getattr(value, "item", None)  # a NumPy scalar, without importing NumPy
    if scalar is not None and getattr(value, "shape", None) == ():
        return _plain(scalar(), what)
    raise TypeError(
        f"{what} must be None, a bool, int, float, str, list or dict, got {brief(value)}: configurations and keys "
        "must mean the same in every process"
    )


def canonical(value: object) -> str:
    """Return the JSON of a plain value: sorted names, no spaces, so that equal values give equal texts."""
    return _encode(value)


def digest(value: object) -> str:
    """Return the first 128 bits of the SHA-256 of a plain value's canonical text, in hexadecimal."""
    return hashed(canonical(value))


def hashed(text: str) -> str:
    """Return the first 128 bits of the SHA-256 of a text, in hexadecimal."""
    return hashlib.sha256(text.encode()).hexdigest()[:32]


_FACTORY = re.compile(r"[^\W\d]\w*(\.[^\W\d]\w*)*:[^\W\d]\w*(\.[^\W\d]\w*)*")
_NAME = re.compile(r"\{(\{[^\W\d]\w*\})\}|(\$?)\{([^\W\d]\w*)\}")


@dataclass(frozen=True, eq=False)
class Candidate:
    """Something that can be measured: a command line or a Python callable, in one configuration.

    Made by `Candidate.command` and `Candidate.call`. Two candidates are equal if everything about them is.

    Attributes
    ----------
    config
        The configuration.
    id
        Identifies the candidate: equal in every process for equal candidates.
    """

    config: Mapping[str, Any]

    @staticmethod
    def command(
        argv: Sequence[str | os.PathLike[str]],
        config: Mapping[str, Any] | None = None,
        *,
        env: Mapping[str, str] | None = None,
        cwd: str | os.PathLike[str] | None = None,
        timeout: float | None = None,
        iterations: int = 1,
        build: Sequence[str | os.PathLike[str]] | None = None,
    ) -> Command:
        """Return a candidate that is a command line.

        Parameters
        ----------
        argv
            The program and its arguments; no shell. ``{name}`` stands for the configuration's value of that name, and
            ``{scratch}`` for a directory of the candidate's own, which exists from its build to its end, and
            ``{include}`` for that of ``ostinato_report.h``. An argument is filled as by `str.format`, so ``{{`` and
            ``}}`` stand for braces, if all its braces mean that; in any other, such as one that holds JSON or a shell's
            function, braces around something else than a name stay as they are.
        config
            The configuration.
        env
            Added to the environment; the same may be written in the values.
        cwd
            Where it runs; by default where this process is.
        timeout
            Seconds it may run; by default the tuner's.
        iterations
            Reported times are divided by this: for programs that print the sum of several runs.
        build
            A command line that is run before, without a device; the same may be written in it.

        Raises
        ------
        TypeError, ValueError
            If an argument is wrong: no program, a ``{name}`` that the configuration lacks, a value that JSON has no
            form for.

        Examples
        --------
        >>> import ostinato as ost
        >>> ost.Candidate.command(["./matmul", "--tile={tile}"], {"tile": 64}).words
        ('./matmul', '--tile=64')
        """
        return Command(
            config=_configuration(config),
            argv=_words("argv", argv),
            env=_environment(env),
            cwd=None if cwd is None else _text("cwd", cwd),
            timeout=None if timeout is None else positive("timeout", timeout),
            iterations=whole("iterations", iterations),
            build=None if build is None else _words("build", build),
        )

    @staticmethod
    def call(
        factory: str | Callable[..., Any],
        config: Mapping[str, Any] | None = None,
        *,
        prepare: str | Callable[..., Any] | None = None,
        setup: str | Callable[..., Any] | None = None,
        source: Sequence[str | os.PathLike[str]] = (),
    ) -> Call:
        """Return a candidate that is a Python callable, measured in a worker process.

        Functions are given as ``"package.module:function"``, or as themselves if they can be found that way.

        Parameters
        ----------
        factory
            Gets the configuration as keywords, and returns the callable that is timed. If that has an attribute
            `before_sample`, a function, this is called before each call, and not timed: it puts back what calls change.
            If it has an attribute `calls_per_sample`, read after its first call, a call of it stands for so many of
            what is measured, and times are divided by that.
        config
            The configuration.
        prepare
            Gets the configuration as keywords, or nothing if it takes nothing, in a process of its own that holds no
            device; what it returns (anything that can be pickled) reaches the factory as `prepared`.
        setup
            Run once per worker, with the `key` of the search if it takes an argument, and its `data` if there are any;
            what it returns reaches the factory as `inputs`.
        source
            Files whose contents belong to the candidate besides the factory's module: a change measures it again.

        Raises
        ------
        TypeError, ValueError
            If an argument is wrong, or a function is defined in ``__main__`` or inside another, where no worker can
            find it.

        Examples
        --------
        >>> import ostinato as ost
        >>> ost.Candidate.call("json:dumps", {"obj": [1, 2]}).factory
        'json:dumps'
        """
        if isinstance(source, str | os.PathLike):
            source = (source,)
        configuration = _configuration(config)
        for keyword, function in (("prepared", prepare), ("inputs", setup)):
            if function is not None and keyword in configuration:
                raise ValueError(
                    f"config must not hold {keyword!r}, which the factory gets from another function, got {function!r}"
                )
        return Call(
            config=configuration,
            factory=importable_name("factory", factory),
            prepare=None if prepare is None else importable_name("prepare", prepare),
            setup=None if setup is None else importable_name("setup", setup),
            source=tuple(_text("source", path) for path in source),
        )

    @cached_property
    def config_text(self) -> str:
        """The configuration as canonical text."""
        return canonical(self.config)

    @cached_property
    def id(self) -> str:
        return hashed(self.config_text + self.shared_text)

    def described(self) -> dict[str, Any]:
        """Return everything about the candidate as a plain value."""
        return {"config": self.config, **self.shared()}

    def shared(self) -> dict[str, Any]:
        """Return everything but the configuration: what most candidates of a search share."""
        raise NotImplementedError

    @property
    def shared_text(self) -> str:
        """What is shared, as canonical text."""
        return canonical(self.shared())

    def __hash__(self) -> int:
        return hash(self.id)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Candidate) and self.id == other.id


@dataclass(frozen=True, eq=False)
class Command(Candidate):
    """A command line; see `Candidate.command`."""

    argv: tuple[str, ...]
    env: Mapping[str, str]
    cwd: str | None
    timeout: float | None
    iterations: int
    build: tuple[str, ...] | None
    words: tuple[str, ...] = field(init=False)
    """`argv` with the configuration's values; ``{scratch}`` stays."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "words", self.filled(self.argv, "{scratch}"))
        for words in (self.build or (), tuple(self.env.values())):
            self.filled(words, "{scratch}")

    def filled(self, words: tuple[str, ...], scratch: str) -> tuple[str, ...]:
        """Return words with what ``{name}``, ``{scratch}`` and ``{include}`` stand for."""
        values = {"scratch": scratch, "include": get_include(), **self.config}
        return tuple(_text("the command", _filled(word, values)) for word in words)

    def shared(self) -> dict[str, Any]:
        return {
            "kind": "command",
            "argv": list(self.argv),
            "env": dict(self.env),
            "cwd": self.cwd,
            "iterations": self.iterations,
            "build": None if self.build is None else list(self.build),
        }


@dataclass(frozen=True, eq=False)
class Call(Candidate):
    """A Python callable; see `Candidate.call`."""

    factory: str
    prepare: str | None
    setup: str | None
    source: tuple[str, ...]

    def shared(self) -> dict[str, Any]:
        return _shared(self.factory, self.prepare, self.setup, self.source)

    @property
    def shared_text(self) -> str:
        return _shared_text(self.factory, self.prepare, self.setup, self.source)


def _shared(factory: str, prepare: str | None, setup: str | None, source: tuple[str, ...]) -> dict[str, Any]:
    return {"kind": "call", "factory": factory, "prepare": prepare, "setup": setup, "source": list(source)}


@lru_cache(maxsize=64)
def _shared_text(factory: str, prepare: str | None, setup: str | None, source: tuple[str, ...]) -> str:
    return canonical(_shared(factory, prepare, setup, source))


def _filled(word: str, values: Mapping[str, Any]) -> str:
    formatter = Formatter()
    try:
        parts = list(formatter.parse(word))
    except ValueError:
        return _filled_in_braces(word, values)
    if any(name is not None and name not in values for _, name, _, _ in parts):
        return _filled_in_braces(word, values)
    filled = []
    for literal, name, specification, conversion in parts:
        filled.append(literal)
        if name is not None:
            try:
                value = formatter.convert_field(values[name], conversion)
                filled.append(formatter.format_field(value, specification or ""))
            except (TypeError, ValueError) as error:
                raise ValueError(f"{word!r}: {error}") from None
    return "".join(filled)


def _filled_in_braces(word: str, values: Mapping[str, Any]) -> str:
    """Fill a word that has other braces too."""

    def value(found: re.Match[str]) -> str:
        escaped, dollar, name = found.groups()
        if escaped:
            return str(escaped)
        if name in values:
            return f"{dollar}{values[name]}"
        if dollar:
            return found[0]  # a variable of the shell's
        raise ValueError(
            f"{{{name}}} in {word!r} must be a name in the configuration, {sorted(values)}; write {{{{{name}}}}} "
            "for braces around a word"
        )

    return _NAME.sub(value, word)


def _text(what: str, value: object) -> str:
    if isinstance(value, os.PathLike):
        value = os.fspath(value)
    if not isinstance(value, str):
        raise TypeError(f"{what} must hold str only, got {value!r}")
    if "\0" in value:
        raise ValueError(f"{what} must not hold null characters, got {value!r}")
    try:
        os.fsencode(value)
    except UnicodeEncodeError:
        raise ValueError(f"{what} must be text that can be encoded for the system, got {value!r}") from None
    return value


def _configuration(config: Mapping[str, Any] | None) -> dict[str, Any]:
    if config is None:
        return {}
    if not isinstance(config, Mapping):
        raise TypeError(f"config must be a mapping of names to values, got {config!r}")
    return dict(plain(config, "config"))


def _words(what: str, words: Sequence[str | os.PathLike[str]]) -> tuple[str, ...]:
    if isinstance(words, str | bytes) or not isinstance(words, Sequence):
        raise TypeError(f"{what} must be a list of the program and its arguments, got {words!r}; no shell splits it")
    if not words:
        raise ValueError(f"{what} is empty")
    return tuple(_text(what, word) for word in words)


def _environment(env: Mapping[str, str] | None) -> dict[str, str]:
    if env is None:
        return {}
    if not isinstance(env, Mapping):
        raise TypeError(f"env must be a mapping of names to values, got {env!r}")
    for name, value in env.items():
        if not _text("env", name) or "=" in name:
            raise ValueError(f"the names in env must be names of environment variables, got {name!r}")
        _text(f"env[{name!r}]", value)
    return dict(env)


def importable_name(what: str, function: str | Callable[..., Any]) -> str:
    if isinstance(function, str):
        name = function
        if not _FACTORY.fullmatch(name):
            raise ValueError(f'{what} must be "package.module:function", got {name!r}')
    elif callable(function):
        module, qualified = getattr(function, "__module__", None), getattr(function, "__qualname__", "")
        name = f"{module}:{qualified}"
        if module != "__main__" and not _found(function, module, qualified):
            raise ValueError(
                f"{what} must be a function at the top level of a module, for workers to import it, got {function!r}"
            )
    else:
        raise TypeError(f'{what} must be "package.module:function" or a function, got {function!r}')
    if name.startswith("__main__:"):
        raise ValueError(
            f"{what} {name!r} is defined in __main__, which a worker process cannot import without running your script "
            'again: move it to a module of its own and name it "module:function"'
        )
    return name


def _found(function: object, module: object, qualified: str) -> bool:
    found: object = sys.modules.get(str(module))
    for name in qualified.split("."):
        found = getattr(found, name, None)
    return found is function
