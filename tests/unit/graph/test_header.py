"""The C header stands alone, and the idea that kernels have of it is the compiler's."""

import ctypes
import importlib
import json
import subprocess
from pathlib import Path

import numpy as np
import pytest

import ostinato as ost
from ostinato.environment import get_include

kernel_entry = importlib.import_module("ostinato.graph.kernel")  # the package has a function of this name

LAYOUT = """
#include "ostinato.h"
#include <stddef.h>
#include <stdio.h>
#define SHOW(type, field) printf("\\"" #type "." #field "\\": %d, ", (int)offsetof(type, field))
int main(void) {
    printf("{");
    SHOW(ost_array, data); SHOW(ost_array, ndim); SHOW(ost_array, shape); SHOW(ost_array, strides);
    SHOW(ost_call, arrays); SHOW(ost_call, scalars); SHOW(ost_call, n_arrays); SHOW(ost_call, n_scalars);
    SHOW(ost_call, step); SHOW(ost_call, user); SHOW(ost_call, data);
    printf("\\"ost_array\\": %d, \\"ost_scalar\\": %d, \\"ost_call\\": %d}",
           (int)sizeof(ost_array), (int)sizeof(ost_scalar), (int)sizeof(ost_call));
    return 0;
}
"""


def test_include_directory():
    assert (Path(get_include()) / "ostinato.h").is_file()


@pytest.mark.parametrize(("language", "standard"), [("c", "c11"), ("c++", "c++17")])
def test_compiles_alone(compiler, tmp_path, language, standard):
    source = tmp_path / "alone.c"
    source.write_text('#include "ostinato.h"\nost_task task;\n')
    flags = ["-Wall", "-Wextra", "-Wpedantic", "-Werror", f"-std={standard}", "-x", language]
    subprocess.run([compiler, *flags, f"-I{get_include()}", "-fsyntax-only", source], check=True)


def test_layout(compiler, tmp_path):
    source, program = tmp_path / "layout.c", tmp_path / "layout"
    source.write_text(LAYOUT)
    subprocess.run([compiler, f"-I{get_include()}", source, "-o", program], check=True)
    layout = json.loads(subprocess.run([program], check=True, capture_output=True, text=True).stdout)
    known = {
        "ost_call.arrays": kernel_entry._CALL_ARRAYS,
        "ost_call.scalars": kernel_entry._CALL_SCALARS,
        "ost_array.data": kernel_entry._ARRAY_DATA,
        "ost_array.shape": kernel_entry._ARRAY_SHAPE,
        "ost_array.strides": kernel_entry._ARRAY_STRIDES,
        "ost_array": kernel_entry._ARRAY_SIZE,
        "ost_scalar": kernel_entry._SCALAR_SIZE,
    }
    assert known == {name: layout[name] for name in known}


OLD_HEADERS = Path(__file__).parent / "old_headers"


def test_fields_stay_where_they_were(compiler, tmp_path):
    layouts = []
    for include in (OLD_HEADERS / "1", get_include()):
        source, program = tmp_path / "layout.c", tmp_path / "layout"
        source.write_text(LAYOUT.replace(" SHOW(ost_call, data);", ""))
        subprocess.run([compiler, f"-I{include}", source, "-o", program], check=True)
        layouts.append(json.loads(subprocess.run([program], check=True, capture_output=True, text=True).stdout))
    old, new = layouts
    assert new.pop("ost_call") > old.pop("ost_call")
    assert new == old


def test_tasks_compiled_with_version_1_run(compiler, tmp_path):
    path = tmp_path / "old.so"
    source = Path(__file__).with_name("native_tasks.c")
    subprocess.run([compiler, "-shared", "-fPIC", f"-I{OLD_HEADERS / '1'}", source, "-o", path], check=True)
    library = ctypes.CDLL(str(path))
    scale = ost.native(library.scale, (ost.Read, ost.Write, float, int))
    first, second = np.ones(3), np.zeros(3)
    ring = ost.ring(first, second)
    with ost.capture() as graph:
        scale(ring[0], ring[1], ost.param("factor"), ost.step)
    with graph.compile() as program:
        program.replay(4, factor=2.0)
    expected = [1.0]
    for step in range(4):
        expected.append(2.0 * expected[-1] + step)
    assert second.tolist() == [expected[3]] * 3
    assert first.tolist() == [expected[4]] * 3


SEEN = """
#include "ostinato.h"
#if OSTINATO_ABI_VERSION < 2
#error "no list of pointers"
#endif
/* counts calls, and those in which the list of pointers is not that of the arrays */
int32_t compare(const ost_call *call) {
    int64_t *counts = (int64_t *)call->user;
    ++counts[0];
    for (int32_t i = 0; i < call->n_arrays; ++i)
        counts[1] += call->data[i] != call->arrays[i].data;
    counts[2] += *(const int64_t *)call->data[0];
    return call->n_arrays == 2 ? 0 : 1;
}
"""


@pytest.mark.parametrize("length", [1, 2, 3, 8, 9, 40], ids="a ring of {}".format)
def test_pointers_are_those_of_the_arrays(compiler, tmp_path, length):
    source, path = tmp_path / "seen.c", tmp_path / "seen.so"
    source.write_text(SEEN)
    subprocess.run([compiler, "-shared", "-fPIC", f"-I{get_include()}", source, "-o", path], check=True)
    counts = np.zeros(3, np.int64)
    compare = ost.native(ctypes.CDLL(str(path)).compare, (ost.Read, ost.Write), user=counts)
    ring = ost.ring(*(np.full(1, i) for i in range(length)))
    target = np.zeros((2, 1))
    with ost.capture() as graph:
        compare(ring[0], target[0])
        compare(ring[-1], target[1])
    steps = 3 * length + 1
    total = sum(s % length + (s - 1) % length for s in range(steps))
    with graph.compile(lanes=1) as program:  # the ops share the counts
        program.replay(steps)
        assert counts.tolist() == [2 * steps, 0, total]
        program.trace(length)  # every op is recorded
        program.replay_eagerly(length)
        assert counts[1] == 0
        assert counts[0] == 2 * steps + 4 * length
        assert counts[2] == sum(s % length + (s - 1) % length for s in range(steps + 2 * length))
    compare(np.full(1, 5), target[0])
    assert counts[1] == 0
