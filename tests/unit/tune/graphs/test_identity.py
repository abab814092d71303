"""What a variant is: the same digest in every process, another one when it changes, none where that cannot be told."""

from __future__ import annotations

import ctypes
import importlib
import os
import subprocess
import sys
import textwrap
from pathlib import Path
from types import FunctionType, SimpleNamespace
from typing import Any

import numpy as np
import pytest

import ostinato as ost
from native import load
from ostinato.graph.recorder import Recordable
from ostinato.graph.task import PythonTask
from ostinato.graph.variant import Variant, variants_of
from ostinato.tune.graphs.identity import importable, source_of
from ostinato.tune.graphs.names import task_name
from tune.graphs import tasks


def as_variant(function: Any, **others: Any) -> Variant:
    task = function if isinstance(function, Recordable) else PythonTask(function, (), "f")
    return Variant(task, "f", **others)


def digest(function: Any, **others: Any) -> str | None:
    return source_of(as_variant(function, **others))


def run(folder: Path, *scripts: str, seed: int = 0) -> list[list[str]]:
    """Run scripts, one after the other, in a process of its own; return the words that each prints."""
    file = folder / "script.py"
    file.write_text("import sys\nfor text in sys.argv[1:]: exec(text, {'__name__': '__main__'}); print('.')\n")
    environment = {**os.environ, "PYTHONHASHSEED": str(seed), "PYTHONDONTWRITEBYTECODE": "1"}
    command = [sys.executable, file, *map(textwrap.dedent, scripts)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True, timeout=60)
    return [words.split() for words in done.stdout.split(".\n")][:-1]


SCRIPT = """
    import functools, math
    import numpy as np
    import ostinato as ost
    from ostinato.graph.task import PythonTask
    from ostinato.graph.variant import Variant
    from ostinato.tune.graphs.identity import source_of
    import helpers

    NAMES = {"b", "a", "c"}
    TABLE = {"x": (1, 2.5), "y": [None, b"z"]}

    def inner(x):
        return math.sqrt(x) + len(NAMES) + FACTOR

    FACTOR = 2.0

    def outer(x: ost.ReadWrite, scale=0.5):
        if x[0] in {"p", "q", "r"}:
            return None
        x *= inner(1.0) * TABLE["x"][0] + helpers.twice(scale) + np.float64(1)

    def looped(n):
        return again(n - 1) if n else 0

    def again(n):
        return looped(n)

    def closing(k, w=np.arange(3)):
        return lambda x: x + k + w[0]

    @ost.kernel
    def scale(src: ost.Read, dst: ost.Write, by):
        for i in range(src.size):
            dst[i] = src[i] * by * FACTOR

    def digest(function):
        task = function if not callable(function) or hasattr(function, "variants") else PythonTask(function, (), "f")
        return source_of(Variant(task, "f"))

    for each in (outer, looped, closing(1), functools.partial(outer, scale=2), ost.task(outer), scale):
        print(digest(each))
    print(digest(PythonTask(helpers.twice, (), "f")))
"""
HELPERS = "def twice(x):\n    return 2 * x\n"


def test_digests_are_the_same_in_every_process(tmp_path: Path) -> None:
    (tmp_path / "helpers.py").write_text(HELPERS)
    (found,) = run(tmp_path, SCRIPT, seed=1)
    assert "None" not in found
    assert len(set(found)) >= 6
    moved = SCRIPT.replace("def outer", "# moved\n\n    def outer")  # comments and places do not count
    assert run(tmp_path, SCRIPT, moved, seed=2) == [found, found]


EDITS = [
    ("FACTOR = 2.0", "FACTOR = 2.5"),
    ('"c"}', '"d"}'),
    ("math.sqrt(x)", "math.exp(x)"),
    ("scale=0.5", "scale=0.75"),
    ('TABLE["x"][0]', 'TABLE["x"][1]'),
    ("(1, 2.5)", "(1, 3.5)"),
    ('"r"}', '"s"}'),
]


def test_what_a_function_uses_belongs_to_it(tmp_path: Path) -> None:
    (tmp_path / "helpers.py").write_text(HELPERS)
    before, *after = run(tmp_path, SCRIPT, *(SCRIPT.replace(*edit) for edit in EDITS))
    assert all(old in SCRIPT for old, _ in EDITS)
    assert len({before[0], *(each[0] for each in after)}) == 1 + len(EDITS)
    (tmp_path / "helpers.py").write_text(HELPERS.replace("2 * x", "x + x"))
    (later,) = run(tmp_path, SCRIPT)
    assert later[0] != before[0]
    assert later[1] == before[1]  # it does not name the module
    assert later[6] != before[6]  # it is in there


def make(k: object) -> Any:
    def made(x: object) -> object:
        return k

    return made


def test_closures_are_what_they_close_over() -> None:
    assert digest(make(1)) == digest(make(1))
    assert len({digest(make(k)) for k in (1, 1.0, True, "1", None, (1,), [1], np.float64(1), np.arange(2))}) == 9
    assert digest(make(np.arange(3))) == digest(make(np.arange(3)))
    assert digest(make(make(1))) == digest(make(make(1))) != digest(make(make(2)))
    assert digest(make(np.zeros(10**6))) is None
    assert digest(make(object())) is None
    assert digest(make(SimpleNamespace())) is None
    assert digest(make([object()])) is None


STATE = """
def counting(x):
    global calls
    calls += 1

def counted():
    n = 0
    def inner(x):
        nonlocal n
        n += 1
    return inner
"""


def test_variables_that_a_function_assigns_to_are_its_state() -> None:
    names: dict[str, Any] = {"calls": 0}
    exec(STATE, names)
    for function in (names["counting"], names["counted"]()):
        before = digest(function)
        function(None)
        assert before is not None
        assert digest(function) == before


MODULE = """
FACTOR, LIST = 2, []

def helper(x):
    return x * FACTOR

def f(x):
    LIST.append(helper(x))
"""


def test_what_a_module_was_when_it_was_imported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The file may have been edited since, or the module been changed by hand."""
    name, file = "changed_by_hand", tmp_path / "changed_by_hand.py"
    file.write_text(MODULE)
    monkeypatch.syspath_prepend(tmp_path)
    module = importlib.import_module(name)
    before = digest(module.f)
    assert before is not None
    module.f(1)
    assert digest(module.f) == before
    monkeypatch.setattr(module, "FACTOR", 3)
    assert digest(module.f) not in (before, None)
    monkeypatch.setattr(module, "FACTOR", 2)
    assert digest(module.f) == before
    file.write_text(MODULE.replace("x * FACTOR", "FACTOR + x"))
    edited = digest(module.f)
    importlib.reload(module)
    assert len({before, edited, digest(module.f)}) == 3
    monkeypatch.delitem(sys.modules, name)


def test_defaults_and_configurations_count() -> None:
    def f(x: object, n: int = 1, *, m: int = 2) -> None: ...

    before = digest(f)
    f.__kwdefaults__ = {"m": 3}
    other = digest(f)
    f.__defaults__ = (2,)
    assert len({before, other, digest(f)}) == 3
    assert digest(f, config={"block": 8}) not in (digest(f), digest(f, config={"block": 16}), None)
    assert digest(f, config={"block": np.int64(8)}) == digest(f, config={"block": 8})
    assert digest(f, on="cpu") != digest(f)


def test_types_and_compiled_functions_are_known_by_name() -> None:
    def f(x: Any) -> object:
        return np.add(x, Path(str(x)).stem, dtype=np.dtype(float)) if isinstance(x, dict) else max(x)

    assert digest(f) is not None
    assert digest(np.add) is not None
    assert digest(make(np.add)) != digest(make(np.multiply))
    assert digest(make(len)) != digest(make(max))
    assert digest(make("abc".upper)) is None


class Machine:
    def __call__(self, x: object) -> None: ...
    def method(self, x: object) -> None: ...


def test_objects_are_not_known() -> None:
    assert digest(Machine()) is None
    assert digest(Machine().method) is None


def test_what_was_executed_from_text_is_known_by_its_code() -> None:
    def executed(text: str) -> FunctionType:
        names: dict[str, Any] = {}
        exec(text, names)
        return names["f"]

    assert digest(executed("def f(x): return x + 1")) == digest(executed("def f(x): return x + 1"))
    assert digest(executed("def f(x): return x + 1")) != digest(executed("def f(x): return x + 2"))


def test_globals_that_cannot_be_told() -> None:
    names: dict[str, Any] = {"thing": object(), "late": 1}
    exec("def f(x): return thing\ndef g(x): return x.thing\ndef h(x): return missing", names)
    assert digest(names["f"]) is None
    assert digest(names["g"]) is not None  # an attribute of this name is something else
    assert digest(names["h"]) is not None
    before = digest(names["h"])
    names["missing"] = 1
    assert digest(names["h"]) != before


def test_native_tasks_are_known_by_their_library(tmp_path: Path) -> None:
    library = load("unit/graph/native_tasks.c")  # its file is gone by now
    assert digest(ost.native(library.scale, (ost.Read, ost.Write, float, int))) is None


def compiled(folder: Path, body: str) -> ctypes.CDLL:
    folder.mkdir(exist_ok=True)
    source, library = folder / "f.c", folder / "library.so"
    source.write_text(
        f'#include "ostinato.h"\nint32_t f(const ost_call *c) {{ {body} }}\nint32_t g(const ost_call *c) {{ {body} }}\n'
    )
    options = ["-O1", "-shared", "-fPIC", f"-I{ost.get_include()}"]
    subprocess.run(["cc", *options, source, "-o", library], check=True)
    return ctypes.CDLL(str(library))


@pytest.mark.skipif(os.system("cc --version > /dev/null 2>&1") != 0, reason="no C compiler")
def test_native_tasks_change_with_their_library(tmp_path: Path) -> None:
    first = compiled(tmp_path / "a", "return c->n_arrays == 77;")
    same = compiled(tmp_path / "b", "return c->n_arrays == 77;")
    other = compiled(tmp_path / "c", "return c->n_arrays == 78;")
    digests = [digest(ost.native(library.f, (ost.Read,))) for library in (first, same, other)]
    assert digests[0] == digests[1] != digests[2]
    assert None not in digests
    assert digest(ost.native(first.g, (ost.Read,))) not in (digests[0], None)
    address = ctypes.cast(first.f, ctypes.c_void_p).value
    assert digest(ost.native(address, (ost.Read,), name="f")) == digests[0]
    os.unlink(tmp_path / "a" / "library.so")
    compiled(tmp_path / "a", "return c->n_arrays == 79;")
    assert digest(ost.native(first.f, (ost.Read,))) is None  # what is loaded is not what is in the file


def test_addresses_of_nothing_in_particular_are_unknown() -> None:
    def f(x: object) -> int:
        return 0

    callback = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p)(f)
    assert digest(ost.native(callback, (ost.Read,), name="f")) is None
    assert digest(ost.native(12345, (ost.Read,), name="f")) is None


def test_what_numba_compiled_is_its_function() -> None:
    numba = pytest.importorskip("numba")
    entry = numba.cfunc(numba.int32(numba.types.voidptr), nopython=True)
    one, same, other = (entry(eval(f"lambda call: {value}")) for value in (0, 0, 3))
    digests = [digest(ost.native(each, (ost.Read,))) for each in (one, same, other)]
    assert digests[0] == digests[1] != digests[2]
    assert None not in digests


def test_kernels_are_their_functions() -> None:
    def kernel(by: int) -> Any:
        @ost.kernel
        def scale(x: ost.ReadWrite) -> None:
            for i in range(x.size):
                x[i] *= by

        return scale

    assert digest(kernel(1)) == digest(kernel(1)) != digest(kernel(2))
    assert digest(kernel(1)) != digest(kernel(1).function)


def test_names_that_workers_can_import() -> None:
    found = [importable(variant) for variant in variants_of(ost.Graph().task(tasks.relax, *[np.zeros(2)] * 2).body)]
    assert found == [f"tune.graphs.tasks:{name}" for name in ("relax", "at_once", "blocked", "blocked")]
    assert importable(as_variant(make(1))) is None
    assert importable(as_variant(tasks.relax.function)) is None  # what has its name is another object
    assert task_name(tasks.relax) == "tune.graphs.tasks:relax"
    assert task_name(PythonTask(list.append, (), "f")) == "builtins:list.append"
    assert task_name(PythonTask(np.add, (), "f")).endswith(":add")
    assert task_name(PythonTask(Machine(), (), "f")).endswith("test_identity:Machine")


def test_names_in_main_are_no_names(tmp_path: Path) -> None:
    script = """
        import ostinato as ost, types, sys
        from ostinato.graph.variant import Variant
        from ostinato.tune.graphs.identity import importable
        @ost.task
        def f(x: ost.Read): ...
        print(importable(Variant(f, "f")))
        made = types.ModuleType("made")
        exec("import ostinato as ost\\n@ost.task\\ndef f(x: ost.Read): ...", vars(made))
        sys.modules["made"] = made
        print(importable(Variant(made.f, "f")))
    """
    assert run(tmp_path, script) == [["None", "None"]]


def test_native_tasks_are_found_by_the_global_that_holds_them(monkeypatch: pytest.MonkeyPatch) -> None:
    task = ost.native(12345, (ost.Read,), name="f")
    assert importable(as_variant(task)) is None
    monkeypatch.setattr(tasks, "held", task, raising=False)
    assert importable(as_variant(task)) == "tune.graphs.tasks:held"


PROJECT = {
    "__init__.py": "",
    "helpers.py": """
from pk import deeper
FACTOR = 2
def scale(x):
    return deeper.scaled(x)
def other(x):
    return x
""",
    "deeper.py": "def scaled(x):\n    return x * 2\n",
    "late.py": "def scale(x):\n    return x * 2\n",
    "shapes.py": "class Shape:\n    def area(self):\n        return 2\n",
    "apart.py": "def apart(x):\n    return x\n",
    "tasks.py": """
import json
import numpy as np
import pk.helpers
from pk import apart, helpers, helpers as short
from pk.helpers import scale
from pk.shapes import Shape

def by_name(x): return scale(x)
def by_module(x): return short.scale(x)
def by_package(x): return pk.helpers.scale(x)
def by_value(x): return x * helpers.FACTOR
def by_type(x): return Shape().area()
def by_import(x):
    from .late import scale
    return scale(x)
def alone(x): return np.add(x, json.loads("1"))
""",
}
NAMES = ("by_name", "by_module", "by_package", "by_value", "by_type", "by_import", "alone")
IN_PROJECT = f"""
    import sys; sys.path.insert(0, sys.argv[0].rpartition("/")[0] + "/FOLDER")
    from ostinato.graph.task import PythonTask
    from ostinato.graph.variant import Variant
    from ostinato.tune.graphs.identity import source_of
    import pk.tasks
    for name in {NAMES}:
        print(source_of(Variant(PythonTask(getattr(pk.tasks, name), (), "f"), "f")))
"""


def write_project(folder: Path, **changed: str) -> None:
    for name, text in PROJECT.items():
        (folder / "pk").mkdir(parents=True, exist_ok=True)
        (folder / "pk" / name).write_text(changed.get(name.removesuffix(".py"), text))


def in_project(folder: Path, inside: str = "here", **changed: str) -> dict[str, str]:
    write_project(folder / inside, **changed)
    (found,) = run(folder, IN_PROJECT.replace("FOLDER", inside))
    assert "None" not in found
    return dict(zip(NAMES, found, strict=True))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("module", "old", "new", "users"),
    [
        ("helpers", "return x\n", "return x + 1\n", {"by_name", "by_module", "by_package", "by_value"}),
        ("deeper", "x * 2", "x * 3", {"by_name", "by_module", "by_package"}),
        ("late", "x * 2", "x * 3", {"by_import"}),
        ("shapes", "return 2", "return 3", {"by_type"}),
        ("apart", "return x", "return x + 1", set()),
    ],
)
def test_other_modules_of_the_project_belong_to_what_uses_them(
    tmp_path: Path, module: str, old: str, new: str, users: set[str]
) -> None:
    before = in_project(tmp_path)
    assert in_project(tmp_path) == before
    text = PROJECT[f"{module}.py"]
    assert old in text
    after = in_project(tmp_path, **{module: text.replace(old, new)})
    assert {name for name in NAMES if before[name] != after[name]} == users


def test_what_is_installed_is_told_by_its_version(tmp_path: Path) -> None:
    before = in_project(tmp_path, "site-packages")
    after = in_project(tmp_path, "site-packages", deeper="def scaled(x):\n    return x * 3\n")
    assert before == after


def test_functions_of_other_modules_count_as_they_are(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_project(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    project = importlib.import_module("pk.tasks")
    before = digest(project.by_module), digest(project.by_name)
    monkeypatch.setattr(project.helpers, "scale", lambda x: x)
    assert digest(project.by_module) != before[0]
    assert digest(project.by_name) == before[1]  # it has the old one
    monkeypatch.setattr(project.helpers, "FACTOR", 3)
    assert digest(project.by_name) == before[1]
    for name in [name for name in sys.modules if name.partition(".")[0] == "pk"]:
        monkeypatch.delitem(sys.modules, name)
