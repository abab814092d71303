"""The C header stands alone, and the idea that kernels have of it is the compiler's."""

import importlib
import json
import subprocess
from pathlib import Path

import pytest

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
    SHOW(ost_call, step); SHOW(ost_call, user);
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
