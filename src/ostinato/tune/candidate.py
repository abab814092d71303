"""Candidates: what is measured."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from ostinato.tune.canonical import digest, plain

__all__ = ["Call", "Candidate", "Command"]

_FACTORY = re.compile(r"[^\W\d]\w*(\.[^\W\d]\w*)*:[^\W\d]\w*(\.[^\W\d]\w*)*")


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
            ``{scratch}`` for
            a directory of the candidate's own, which exists from its build to its end. ``{{`` and ``}}`` stand for
            braces.
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
            cwd=None if cwd is None else os.fspath(cwd),
            timeout=_seconds(timeout),
            iterations=_count(iterations),
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
            Gets the configuration as keywords, and returns the callable that is timed.
        config
            The configuration.
        prepare
            Gets the configuration as keywords, in a process of its own that holds no device; what it returns
            (anything that can be
            pickled) reaches the factory as `prepared`.
        setup
            Run once per worker, with the `key` of the search if it takes an argument; what it returns reaches the
            factory as `inputs`.
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
        return Call(
            config=_configuration(config),
            factory=_name("factory", factory),
            prepare=None if prepare is None else _name("prepare", prepare),
            setup=None if setup is None else _name("setup", setup),
            source=tuple(os.fspath(path) for path in source),
        )

    @cached_property
    def id(self) -> str:
        return digest(self.described())

    def described(self) -> dict[str, Any]:
        """Return everything about the candidate as a plain value."""
        raise NotImplementedError

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
        """Return words with what ``{name}`` and ``{scratch}`` stand for."""
        values = dict(self.config)
        values.setdefault("scratch", scratch)
        try:
            return tuple(word.format_map(values) for word in words)
        except KeyError as error:
            raise ValueError(
                f"{{{error.args[0]}}} in {list(words)} is no name of the configuration {dict(self.config)}; "
                "write {{ and }} for braces"
            ) from None
        except (ValueError, IndexError, AttributeError) as error:
            raise ValueError(f"{list(words)}: {error}; write {{{{ and }}}} for braces") from None

    def described(self) -> dict[str, Any]:
        return {
            "kind": "command",
            "config": self.config,
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

    def described(self) -> dict[str, Any]:
        return {
            "kind": "call",
            "config": self.config,
            "factory": self.factory,
            "prepare": self.prepare,
            "setup": self.setup,
            "source": list(self.source),
        }


def _configuration(config: Mapping[str, Any] | None) -> dict[str, Any]:
    if config is None:
        return {}
    if not isinstance(config, Mapping):
        raise TypeError(f"config is a mapping of names to values, not {config!r}")
    return dict(plain(config, "config"))


def _words(what: str, words: Sequence[str | os.PathLike[str]]) -> tuple[str, ...]:
    if isinstance(words, str | bytes) or not isinstance(words, Sequence):
        raise TypeError(f"{what} is a list of the program and its arguments, not {words!r}; no shell splits it")
    if not words:
        raise ValueError(f"{what} is empty")
    filled = []
    for word in words:
        if not isinstance(word, str | os.PathLike):
            raise TypeError(f"{what} holds {word!r}, which is no str")
        text = os.fspath(word)
        if "\0" in text:
            raise ValueError(f"{what} holds {text!r}, with a null character")
        filled.append(text)
    return tuple(filled)


def _environment(env: Mapping[str, str] | None) -> dict[str, str]:
    for name, value in (env or {}).items():
        if not isinstance(name, str) or not isinstance(value, str):
            raise TypeError(f"env holds {name!r}: {value!r}; both are str")
        if not name or "=" in name or "\0" in name + value:
            raise ValueError(f"env holds {name!r}: {value!r}, which no environment can")
    return dict(env or {})


def _seconds(timeout: float | None) -> float | None:
    if timeout is None:
        return None
    if isinstance(timeout, bool) or not isinstance(timeout, int | float):
        raise TypeError(f"timeout is a number of seconds, not {timeout!r}")
    if not 0 < timeout < float("inf"):
        raise ValueError(f"timeout is positive and finite, not {timeout!r}")
    return float(timeout)


def _count(iterations: int) -> int:
    if isinstance(iterations, bool) or not isinstance(iterations, int):
        raise TypeError(f"iterations is a whole number, not {iterations!r}")
    if iterations < 1:
        raise ValueError(f"iterations is at least 1, not {iterations}")
    return iterations


def _name(what: str, function: str | Callable[..., Any]) -> str:
    if isinstance(function, str):
        name = function
        if not _FACTORY.fullmatch(name):
            raise ValueError(f'{what} is "package.module:function", not {name!r}')
    elif callable(function):
        module, qualified = getattr(function, "__module__", None), getattr(function, "__qualname__", "")
        if not module or "<" in qualified or not qualified:
            raise ValueError(
                f"{what} {function!r} cannot be imported by a worker: define it at the top level of a module"
            )
        name = f"{module}:{qualified}"
    else:
        raise TypeError(f'{what} is "package.module:function" or a function, not {function!r}')
    if name.startswith("__main__:"):
        raise ValueError(
            f"{what} {name!r} is defined in __main__, which a worker process cannot import without running your script "
            'again: move it to a module of its own and name it "module:function"'
        )
    return name
