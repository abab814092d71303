"""Jobs: searches described by a file, for ``ostinato tune FILE.toml``.

A job file is TOML. Paths in it are relative to it, and so is where commands run::

    op = "matmul"                              # what is tuned: part of the key of stored results
    devices = ["cpu:0", "cpu:1"]               # by default "all"
    key = { n = 512 }                          # the problem: part of the key, and given to setup and verify
    default = { tile = 16, unroll = 1 }        # the configuration to beat
    where = ["tile * unroll <= 256"]           # only configurations of which all of these are true
    strategy = "exhaustive"                    # or "random", "optuna"
    trials = 100                               # how many, for those two
    seed = 0                                   # for those two
    verify = "checks:matmul"                   # package.module:function, see Tuner.tune
    timeout = 30.0                             # seconds that a candidate may take
    memory = "2 GiB"                           # that it may take
    env_allow = ["MKL_*"]                      # variables that candidates inherit; by default all, see Tuner
    store = "tune.db"                          # by default in the user's cache directory

    [space]                                    # the values of each parameter
    tile = [16, 32, 64]
    unroll = { powers = [1, 8] }               # 1, 2, 4, 8
    ahead = { range = [0, 12, 4] }             # 0, 4, 8: as Python's range

    [command]                                  # candidates are command lines, see Candidate.command
    argv = ["{scratch}/matmul"]
    build = ["c++", "-O3", "-DTILE={tile}", "-DUNROLL={unroll}", "-o", "{scratch}/matmul", "matmul.cpp"]
    env = { OMP_NUM_THREADS = "1" }
    cwd = "."
    iterations = 1

    [call]                                     # or Python callables, see Candidate.call
    factory = "kernels:matmul"
    prepare = "kernels:compiled"
    setup = "kernels:inputs"
    source = ["kernels.h"]
    path = ["."]                               # where modules are found

    [policy]                                   # see Policy
    cache = "cold"

    [budget]                                   # see Budget
    seconds = 600

Only ``op``, ``[space]`` and either ``[command]`` or ``[call]`` are needed. What is in ``where`` are
expressions as in Python: parameters, numbers, strings, lists; arithmetic, comparisons, ``in``, ``and``, ``or``,
``not``; and abs, len, max, min.
"""

from __future__ import annotations

import ast
import dataclasses
import operator
import os
import re
import sys
import time
import tomllib
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, fields
from difflib import get_close_matches
from pathlib import Path
from typing import Any

from ostinato.errors import TuningError
from ostinato.tune.candidate import Candidate, importable_name, plain
from ostinato.tune.policy import Budget, Policy, allowed_names, positive
from ostinato.tune.progress import Progress, listener
from ostinato.tune.report.report import Report
from ostinato.tune.result import Result
from ostinato.tune.searching.queue import Strategy
from ostinato.tune.searching.tuner import Tuner
from ostinato.tune.space import Space
from ostinato.tune.strategies import Exhaustive, Optuna, Random

_FUNCTIONS = {"abs": abs, "len": len, "max": max, "min": min}
_NODES = (
    *(ast.Expression, ast.Name, ast.Load, ast.Constant, ast.Tuple, ast.List, ast.Call),
    *(ast.BoolOp, ast.And, ast.Or, ast.UnaryOp, ast.Not, ast.USub, ast.UAdd, ast.IfExp),
    *(ast.BinOp, ast.Add, ast.Sub, ast.Mult, ast.Div, ast.FloorDiv, ast.Mod, ast.Pow),
    *(ast.LShift, ast.RShift, ast.BitAnd, ast.BitOr, ast.BitXor),
    *(ast.Compare, ast.Eq, ast.NotEq, ast.Lt, ast.LtE, ast.Gt, ast.GtE, ast.In, ast.NotIn),
)
_LONGEST = 4096  # bits of a whole number: constraints of sizes, strides and bytes need sixty-four


def _checked(sign: str, apply: Callable[[Any, Any], Any], bits: Callable[[int, int], int]) -> Callable[[Any, Any], Any]:
    """Return an operation that could take all time and memory, for numbers that are not too large."""

    def checked(one: Any, other: Any) -> Any:
        if not isinstance(one, int | float | complex) or not isinstance(other, int | float | complex):
            kinds = f"{type(one).__name__} and {type(other).__name__}"
            raise TypeError(f"in a constraint, {sign} must have two numbers, got {kinds}")
        if isinstance(one, int) and isinstance(other, int) and bits(one, other) > _LONGEST:
            raise OverflowError(f"{_shown(one)} {sign} {_shown(other)} is a number of more than {_LONGEST} bits")
        return apply(one, other)

    return checked


def _shown(number: int) -> str:
    return str(number) if number.bit_length() <= 64 else f"(a number of {number.bit_length()} bits)"


# By what no name in an expression can be.
_CHECKED = {
    "*": _checked("*", operator.mul, lambda one, other: one.bit_length() + other.bit_length()),
    "**": _checked("**", operator.pow, lambda one, other: (one.bit_length() - 1) * other),
    "<<": _checked("<<", operator.lshift, lambda one, other: one.bit_length() + other),
    "%": _checked("%", operator.mod, lambda one, other: 0),  # of a text: "%99999999d"
}
_SIGNS: dict[type[ast.operator], str] = {ast.Mult: "*", ast.Pow: "**", ast.LShift: "<<", ast.Mod: "%"}


def _check(tree: ast.Expression) -> None:
    """Have the operations that could take all time and memory done by those of `_CHECKED`."""
    for node in reversed(list(ast.walk(tree))):  # operands before what they are operands of
        for name, value in ast.iter_fields(node):
            if isinstance(value, list):
                value[:] = map(_checking, value)
            else:
                setattr(node, name, _checking(value))


def _checking(node: Any) -> Any:
    sign = _SIGNS.get(type(node.op)) if isinstance(node, ast.BinOp) else None
    if sign is None:
        return node
    function = ast.copy_location(ast.Name(sign, ast.Load()), node)
    return ast.copy_location(ast.Call(function, [node.left, node.right], []), node)


def constraint(text: str, names: Collection[str]) -> Callable[[Mapping[str, Any]], bool]:
    """Return a function of a configuration that says whether an expression is true of it."""
    try:
        tree = ast.parse(text.strip(), mode="eval")
    except (SyntaxError, ValueError, MemoryError, RecursionError) as error:
        raise ValueError(f"a constraint must be an expression, got {text!r}: {error}") from None
    called = {id(node.func) for node in ast.walk(tree) if isinstance(node, ast.Call)}
    for node in ast.walk(tree):
        if not isinstance(node, _NODES):
            raise ValueError(f"{text!r}: {ast.unparse(node)!r} is not allowed in a constraint")
        if isinstance(node, ast.Call) and (
            not isinstance(node.func, ast.Name) or node.func.id not in _FUNCTIONS or node.keywords
        ):
            raise ValueError(f"{text!r}: functions in a constraint are {', '.join(_FUNCTIONS)}")
        if isinstance(node, ast.Name) and id(node) not in called and node.id not in names:
            raise ValueError(
                f"{text!r}: names in a constraint must be parameters ({', '.join(names)}), got {node.id!r}"
            )
    try:
        _check(tree)
        code = compile(tree, "<constraint>", "eval")
    except (MemoryError, RecursionError) as error:
        raise ValueError(f"{text!r} is nested too deeply: {error}") from None
    used = [name for name in names if name in code.co_names and name.isidentifier()]
    known = {"__builtins__": {}, **_FUNCTIONS, **_CHECKED}

    def allows(config: Mapping[str, Any]) -> bool:
        try:
            return bool(eval(code, known, {name: config[name] for name in used}))
        except (ArithmeticError, TypeError, ValueError) as error:
            raise ValueError(f"{text!r} makes no sense for {dict(config)}: {error}") from None

    return allows


_BYTES = {
    "": 1,
    "B": 1,
    **{f"{unit}{i}B": (1024 if i else 1000) ** power for power, unit in enumerate("KMGT", 1) for i in ("", "i")},
}
_MOST_LISTED = 100_000


class JobError(TuningError):
    """A job file is wrong: the message says where, and what it may be."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """A search that a file describes.

    Attributes
    ----------
    op, key, verify, budget
        As `Tuner.tune` has them.
    candidates
        Makes the candidates, or the strategy that offers them, anew at each call.
    default
        The default candidate.
    devices, store, timeout, memory, policy, env_allow
        As `Tuner` has them.
    path
        Directories where modules are found.
    """

    op: str
    key: dict[str, Any]
    candidates: Callable[[], Iterable[Candidate] | Strategy]
    default: Candidate | None
    verify: str | None
    budget: Budget
    devices: str | list[str]
    store: Path | None
    timeout: float
    memory: int | None
    policy: Policy
    path: tuple[str, ...]
    env_allow: tuple[str, ...] | None


def load(path: str | os.PathLike[str]) -> Job:
    """Read a job file.

    Raises
    ------
    JobError
        If something in it is wrong, or it cannot be read.

    Examples
    --------
    >>> import pathlib
    >>> _ = pathlib.Path("job.toml").write_text('''
    ... op = "dumps"
    ... where = ["obj != 2"]
    ... [space]
    ... obj = { powers = [1, 4] }
    ... [call]
    ... factory = "json:dumps"
    ... ''')
    >>> [candidate.config for candidate in load("job.toml").candidates()]
    [{'obj': 1}, {'obj': 4}]
    """
    file = Path(path)
    try:
        values = tomllib.loads(file.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise JobError(f"{file}: {error}") from None
    try:
        return _job(_Table("", values), Path(os.path.abspath(file)).parent)
    except _WrongError as error:
        raise JobError(f"{file}: {error}") from None


class _WrongError(Exception):
    """Says which key is wrong, and why."""


class _Table:
    """A table of a job file; takes its keys one by one, and complains of those that nobody took."""

    def __init__(self, name: str, values: dict[str, Any]) -> None:
        self.name = name
        self._values = dict(values)
        self._known: list[str] = []

    def __contains__(self, key: str) -> bool:
        return key in self._values

    def take(self, key: str, kind: type | tuple[type, ...], described: str, default: Any = ...) -> Any:
        """Return the value of a key; `described` is what it should be."""
        self._known.append(key)
        if key not in self._values:
            if default is ...:
                raise self.wrong(key, f"is missing{self.meant(key)}; it is {described}")
            return default
        value = self._values.pop(key)
        if not isinstance(value, kind) or (isinstance(value, bool) and kind is not bool):
            raise self.wrong(key, f"must be {described}, got {value!r}")
        return value

    def words(self, key: str, default: Any = ...) -> Any:
        """Return a list of str."""
        found = self.take(key, list, "a list of strings", default)
        if isinstance(found, list) and not all(isinstance(word, str) for word in found):
            raise self.wrong(key, f"must be a list of strings, got {found!r}")
        return found

    def table(self, key: str) -> _Table:
        """Return a table within this one; an empty one if it is not there."""
        return _Table(key, self.take(key, dict, "a table", {}))

    def given(self, keys: Iterable[str]) -> dict[str, Any]:
        """Return those of some keys that are there, with their values as they are."""
        self._known += keys
        return {key: self._values.pop(key) for key in self._known if key in self._values}

    def meant(self, *keys: str) -> str:
        """Return which key that is there, and means nothing, may be one of these that are not."""
        near = [found for key in keys for found in get_close_matches(key, self._values, 1)]
        return f" (is that what {near[0]!r} is meant to be?)" if near else ""

    def rest(self) -> dict[str, Any]:
        """Return all that is left, whatever its names."""
        values, self._values = self._values, {}
        return values

    def done(self) -> None:
        """Refuse keys that mean nothing."""
        for key in self._values:
            near = get_close_matches(key, self._known, 1)
            meant = f"; is {near[0]!r} meant?" if near else f"; here may be {', '.join(self._known)}"
            raise self.wrong(key, f"means nothing{meant}")

    def wrong(self, key: str, why: object) -> _WrongError:
        return _WrongError(f"{f'[{self.name}] ' if self.name else ''}{key}: {why}")

    def checked(self, key: str, make: Callable[..., Any], *arguments: Any) -> Any:
        """Return what `make` makes of a key's value."""
        try:
            return make(*arguments)
        except (TypeError, ValueError, ImportError) as error:
            raise self.wrong(key, error) from None


def _job(top: _Table, directory: Path) -> Job:
    name = top.take("op", str, "the name of what is tuned")
    key = top.take("key", dict, "a table", {})
    devices = top.take("devices", (str, list), "names of devices", "all")
    store = top.take("store", str, "a path", None)
    verify = top.take("verify", str, '"package.module:function"', None)
    timeout = top.take("timeout", (int, float), "a number of seconds", 30.0)
    allow = top.words("env_allow", None)
    memory = top.take("memory", (int, str), 'a number of bytes, such as "2 GiB"', None)
    space = _space(top)
    make, path = _maker(top, directory, space)
    job = Job(
        op=name,
        key=top.checked("key", plain, key, "it"),
        candidates=_strategy(top, space, make),
        default=_default(top, space, make),
        verify=None if verify is None else top.checked("verify", importable_name, "it", verify),
        budget=_limits(top, "budget", Budget),
        devices=devices,
        store=None if store is None else directory / store,
        timeout=top.checked("timeout", positive, "it", timeout),
        memory=None if memory is None else top.checked("memory", _bytes, memory),
        policy=_limits(top, "policy", Policy),
        path=tuple(path),
        env_allow=top.checked("env_allow", allowed_names, allow),
    )
    top.done()
    return job


def _space(top: _Table) -> Space:
    table = top.table("space")
    if "where" in table:
        raise table.wrong("where", "belongs before the first [table] of the file; no parameter can be called so")
    parameters = {key: table.checked(key, _values, value) for key, value in table.rest().items()}
    where = top.words("where", [])
    constraints = [top.checked("where", constraint, text, parameters) for text in where]
    space: Space = top.checked("space", lambda: Space(parameters, where=constraints))
    if top.checked("where", next, iter(space), None) is None:
        raise top.wrong("where", "leaves no configuration")
    return space


def _values(value: Any) -> list[Any]:
    if isinstance(value, list) and value:
        return value
    if isinstance(value, dict) and len(value) == 1:
        ((kind, ends),) = value.items()
        whole = isinstance(ends, list) and all(isinstance(end, int) and not isinstance(end, bool) for end in ends)
        if kind == "range" and whole and 1 <= len(ends) <= 3 and list(range(*ends)):
            return list(range(*ends))
        if kind == "powers" and whole and len(ends) == 2 and 1 <= ends[0] <= ends[1]:
            found = [1 << power for power in range(ends[1].bit_length())]
            if ends[0] in found and ends[1] in found:
                return [power for power in found if power >= ends[0]]
    raise ValueError(
        "must have the values [a, b, ...], { range = [start, stop, step] } or { powers = [8, 64] } (of two), got "
        f"{value!r}"
    )


def _maker(top: _Table, directory: Path, space: Space) -> tuple[Callable[[dict[str, Any]], Candidate], list[str]]:
    if ("command" in top) == ("call" in top):
        near = "" if "command" in top else top.meant("command", "call")
        raise _WrongError(f"there is either a [command] or a [call]{near}, which says what the candidates are")
    if "command" in top:
        table = top.table("command")
        argv, build = table.words("argv"), table.words("build", None)
        env = table.take("env", dict, "a table of strings", {})
        cwd = directory / table.take("cwd", str, "a path", ".")
        iterations = table.take("iterations", int, "an integer", 1)
        path = [os.fspath(directory)]

        def make(config: dict[str, Any]) -> Candidate:
            return Candidate.command(argv, config, env=env, cwd=cwd, iterations=iterations, build=build)

    else:
        table = top.table("call")
        factory = table.take("factory", str, '"package.module:function"')
        prepare = table.take("prepare", str, '"package.module:function"', None)
        setup = table.take("setup", str, '"package.module:function"', None)
        source = [directory / name for name in table.words("source", [])]
        path = [os.fspath(directory / name) for name in table.words("path", ["."])]

        def make(config: dict[str, Any]) -> Candidate:
            return Candidate.call(factory, config, prepare=prepare, setup=setup, source=source)

    table.done()
    try:
        make(next(iter(space)))
    except (TypeError, ValueError) as error:
        raise _WrongError(f"[{table.name}] {error}") from None
    return make, path


def _strategy(
    top: _Table, space: Space, make: Callable[[dict[str, Any]], Candidate]
) -> Callable[[], Iterable[Candidate] | Strategy]:
    strategy = top.take("strategy", str, '"exhaustive", "random" or "optuna"', "exhaustive")
    trials = top.take("trials", int, "an integer", None)
    seed = top.take("seed", int, "an integer", 0)
    if strategy == "exhaustive":
        if trials is not None:
            raise top.wrong("trials", 'is for strategy = "random" or "optuna"; [budget] candidates limits any')
        if space.size <= _MOST_LISTED:
            return lambda: [make(config) for config in space]
        return lambda: Exhaustive(space, make)
    if strategy == "random":
        return lambda: Random(space, make, trials, seed)
    if strategy == "optuna":
        if trials is None:
            raise top.wrong("trials", 'is missing: how many candidates strategy = "optuna" tries')
        return lambda: Optuna(space, make, trials, seed=seed)
    raise top.wrong("strategy", f'must be "exhaustive", "random" or "optuna", got {strategy!r}')


def _default(top: _Table, space: Space, make: Callable[[dict[str, Any]], Candidate]) -> Candidate | None:
    config = top.take("default", dict, "a configuration", None)
    if config is None:
        return None
    if config not in space:
        raise top.wrong("default", f"must be a configuration of [space], got {config}")
    return make({name: config[name] for name in space.parameters})


def _limits(top: _Table, key: str, kind: type[Policy] | type[Budget]) -> Any:
    table = top.table(key)
    values = table.given([field.name for field in fields(kind)])
    table.done()
    return top.checked(f"[{key}]", lambda: kind(**values))


def _bytes(size: int | str) -> int:
    if isinstance(size, str):
        found = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([A-Za-z]*)\s*", size)
        unit = _BYTES.get(found[2]) if found else None
        if found is None or unit is None:
            raise ValueError(f'must be a number of bytes, as 2147483648 or "2 GiB", got {size!r}')
        size = int(float(found[1]) * unit)
    if size < 1:
        raise ValueError(f"must be at least 1 byte, got {size}")
    return size


def run(
    job: Job,
    devices: str | None = None,
    *,
    anew: bool = False,
    store: str | os.PathLike[str] | None = None,
    seconds: float | None = None,
    fleet: str | None = None,
) -> tuple[Report, bool]:
    """Run a job and return what was found, and whether it was interrupted (Ctrl-C): then what was found until then.

    The job's directories are put before the others where modules are found.
    """
    sys.path[:0] = [path for path in job.path if path not in sys.path]
    progress = SoFar(listener(None))
    budget = job.budget if seconds is None else dataclasses.replace(job.budget, seconds=seconds)
    try:
        candidates = job.candidates()
        tuner = Tuner(
            job.devices if devices is None else devices,
            store=job.store if store is None else store,
            timeout=job.timeout,
            memory=job.memory,
            policy=job.policy,
            progress=progress,
            fleet=fleet,
            env_allow=job.env_allow,
        )
    except (ValueError, ImportError) as error:
        raise JobError(str(error)) from error
    with tuner:
        try:
            report = tuner.tune(
                job.op,
                candidates,
                key=job.key,
                default=job.default,
                verify=job.verify,
                budget=budget,
                anew=anew,
            )
        except KeyboardInterrupt:
            return progress.report(job.key, job.policy, job.default), True
    return report, False


class SoFar(Progress):
    """Keeps the results of a search as they come, and tells another listener all that it is told.

    Examples
    --------
    >>> import ostinato as ost
    >>> found = SoFar(Progress())
    >>> found.begin("dumps", 2)
    >>> candidate = ost.Candidate.call("json:dumps", {"obj": 1})
    >>> result = ost.Result(candidate=candidate, op="dumps", status=ost.Status.OK, time_ns=900.0)
    >>> found.ended(result, result)
    >>> found.report({}, ost.Policy()).best is result
    True
    """

    def __init__(self, listener: Progress) -> None:
        self._listener = listener
        for name in ("waiting", "building", "running", "idle", "note", "end"):
            setattr(self, name, getattr(listener, name))
        self._op = ""
        self._began = time.monotonic()
        self._best: Result | None = None
        self._results: dict[tuple[str, str], Result] = {}

    def report(self, key: Mapping[str, Any], policy: Policy, default: Candidate | None = None) -> Report:
        """Return a report of the results so far: no final has been held, so the fastest one leads, without ties."""
        name = None if default is None else default.id
        return Report(
            op=self._op,
            key=dict(key),
            policy=policy,
            best=self._best,
            ties=() if self._best is None else (self._best,),
            results=tuple(self._results.values()),
            default=next((result for (candidate, _), result in self._results.items() if candidate == name), None),
            seconds=time.monotonic() - self._began,
        )

    def begin(self, op: str, total: int | None) -> None:
        self._op, self._began, self._best = op, time.monotonic(), None
        self._results.clear()
        self._listener.begin(op, total)

    def ended(self, result: Result, best: Result | None) -> None:
        self._results[result.candidate.id, result.op] = result
        self._best = best
        self._listener.ended(result, best)
