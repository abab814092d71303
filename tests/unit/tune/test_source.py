"""Digests of what candidates stand for: whatever changes it changes them, and nothing else does."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
import time
import zipfile
from pathlib import Path
from types import SimpleNamespace

import pytest

import ostinato as ost
from ostinato.tune.store import key as source
from ostinato.tune.store.key import Sources
from tune import storing


@pytest.fixture
def modules(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A directory of modules that raise when they are imported."""
    directory = tmp_path / "modules"
    (directory / "package").mkdir(parents=True)
    for name in ("one.py", "two.py", "package/__init__.py", "package/inner.py"):
        (directory / name).write_text("raise SystemExit('imported')  # 1\n")
    monkeypatch.syspath_prepend(str(directory))
    return directory


def call(factory: str = "one:f", **others) -> ost.Candidate:
    return ost.Candidate.call(factory, {"tile": 1}, **others)


def of(candidate: ost.Candidate, verify: str | None = None) -> str:
    return Sources(verify).of(candidate)


@pytest.mark.parametrize("factory", ["one:f", "package.inner:f", "package:f"])
def test_a_changed_module_changes_the_digest_and_is_not_imported(modules: Path, factory: str) -> None:
    before = of(call(factory))
    assert of(call(factory)) == before
    module = factory.partition(":")[0]
    path = modules / {"one": "one.py", "package": "package/__init__.py", "package.inner": "package/inner.py"}[module]
    path.write_text("raise SystemExit('imported')  # 2\n")  # as long as before, perhaps within one tick of the clock
    after = of(call(factory))
    assert after != before
    path.write_text("raise SystemExit('imported')  # 1\n")
    assert of(call(factory)) == before
    assert module not in sys.modules


@pytest.mark.parametrize("role", ["prepare", "setup", "verify"])
def test_the_modules_of_the_other_functions_belong_to_it(modules: Path, role: str) -> None:
    def digest() -> str:
        return of(call(), verify="two:g") if role == "verify" else of(call(**{role: "two:g"}))

    before = digest()
    assert before != of(call())
    (modules / "two.py").write_text("changed = True\n")
    assert digest() != before


def test_another_check_in_the_same_module_is_another_digest(modules: Path) -> None:
    assert of(call(), verify="two:g") != of(call(), verify="two:h")


def test_a_file_is_read_again_only_when_it_changed(modules: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(source, "_SETTLED", -(10**18))  # as if it had been left alone for long
    read = []
    file_digest = hashlib.file_digest
    monkeypatch.setattr(hashlib, "file_digest", lambda file, name: (read.append(file.name), file_digest(file, name))[1])
    before = of(call())
    assert of(call()) == of(call("one:g")) == before
    assert len(read) == 1
    (modules / "one.py").write_text("raise SystemExit('replaced')  # 1\n")
    assert of(call()) != before
    assert len(read) == 2


def test_a_change_that_hides_behind_the_old_time_is_seen(modules: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(source, "_SETTLED", -(10**18))
    before, times = of(call()), (modules / "one.py").stat()
    (modules / "one.py").write_text("raise SystemExit('imported')  # 2\n")
    os.utime(modules / "one.py", ns=(times.st_atime_ns, times.st_mtime_ns))
    assert of(call()) != before


def test_a_file_that_changed_just_now_is_read_again(modules: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its times may stay the same when it is changed again within one tick of the clock."""
    monkeypatch.setattr(source, "_SETTLED", 10**18)  # as if all this took no time
    now = time.time_ns() - 10**9

    def stat(path: str) -> SimpleNamespace:
        found = os.lstat(path)
        names = ("st_mode", "st_dev", "st_ino", "st_size")
        return SimpleNamespace(**{name: getattr(found, name) for name in names}, st_mtime_ns=now, st_ctime_ns=now)

    with monkeypatch.context() as patch:
        patch.setattr(os, "stat", stat)
        before = of(call())
        (modules / "one.py").write_text("raise SystemExit('imported')  # 2\n")
        after = of(call())
    assert after != before


def test_what_is_changed_while_a_search_goes_on_is_seen(modules: Path) -> None:
    sources = Sources()
    before = sources.of(call())
    (modules / "one.py").write_text("raise SystemExit('other')  # 1\n\n")
    assert sources.of(call()) != before


def test_a_module_that_appears_is_seen_by_the_next_search(modules: Path) -> None:
    before, times = of(call("later:f")), modules.stat()
    (modules / "later.py").write_text("f = None\n")
    os.utime(modules, ns=(times.st_atime_ns, times.st_mtime_ns))  # as if within one tick of the clock
    assert of(call("later:f")) != before


def test_modules_that_are_built_in_or_nowhere_have_a_digest() -> None:
    assert of(call("sys:exit"))
    assert of(call("no_such_module_anywhere.inner:f")) == of(call("no_such_module_anywhere.inner:g"))
    assert of(call("sys.inner:f"))


def test_a_module_in_an_archive_is_its_archive(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    archive = tmp_path / "archive.zip"

    def write(text: str) -> None:
        with zipfile.ZipFile(archive, "w") as file:
            file.writestr("zipped.py", text)

    write("a = 1")
    monkeypatch.syspath_prepend(str(archive))
    before = of(call("zipped:f"))
    write("a = 2")
    assert of(call("zipped:f")) != before


def test_source_files_belong_to_it(modules: Path, tmp_path: Path) -> None:
    extra = tmp_path / "kernel.cu"
    extra.write_text("one")
    before = of(call(source=[extra]))
    extra.write_text("two")
    assert of(call(source=[extra])) != before
    extra.unlink()
    with pytest.raises(FileNotFoundError, match=r"source of one:f must be a file, got '.*kernel\.cu'"):
        of(call(source=[extra]))


def test_a_worker_is_stale_when_something_it_imported_changes(modules: Path, tmp_path: Path) -> None:
    extra = tmp_path / "constants.py"
    extra.write_text("one")
    sources = Sources(verify="two:g")
    candidates = [call(source=[extra]), ost.Candidate.call("one:f", {"tile": 2}, source=[extra])]
    first, second = map(sources.imported, candidates)
    assert first is second
    for path in (extra, modules / "one.py", modules / "two.py"):
        before = sources.imported(candidates[0])
        path.write_text("changed")
        assert sources.imported(candidates[0]) != before
    prepared = call(prepare="package:p")
    before = sources.imported(prepared)
    (modules / "package" / "__init__.py").write_text("changed")
    assert sources.imported(prepared) != before  # what prepares is a worker too


def program(path: Path, text: str = "#!/bin/sh\n") -> Path:
    path.parent.mkdir(exist_ok=True)
    path.write_text(text)
    path.chmod(0o755)
    return path


def test_a_program_is_found_along_the_path_of_its_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    here = program(tmp_path / "here" / "prof", "#!/bin/sh\n# here\n")
    there = program(tmp_path / "there" / "prof", "#!/bin/sh\n# there\n")
    monkeypatch.setenv("PATH", str(here.parent))
    from_here = of(ost.Candidate.command(["prof"]))
    from_there = of(ost.Candidate.command(["prof"], env={"PATH": str(there.parent)}))
    assert from_here != from_there
    here.write_text(there.read_text())
    assert of(ost.Candidate.command(["prof"])) == from_there


def test_names_are_relative_to_the_directory_of_the_command(tmp_path: Path) -> None:
    program(tmp_path / "there" / "prof")
    command = ost.Candidate.command(["./prof", "input"], cwd=tmp_path / "there")
    before = of(command)
    (tmp_path / "there" / "input").write_text("1")
    with_input = of(command)
    assert with_input != before
    program(tmp_path / "there" / "prof", "#!/bin/sh\nexit\n")
    assert of(command) not in (before, with_input)


@pytest.mark.parametrize("word", ["{path}", "--input={path}"])
def test_files_that_arguments_name_belong_to_it(tmp_path: Path, word: str) -> None:
    path = tmp_path / "input.bin"
    command = ost.Candidate.command(["/bin/true", word], {"path": str(path)})
    before = of(command)
    path.write_bytes(b"1")
    first = of(command)
    path.write_bytes(b"2")
    assert len({before, first, of(command)}) == 3


def test_files_of_the_build_belong_to_it(tmp_path: Path) -> None:
    path = tmp_path / "matmul.cpp"
    path.write_text("1")
    command = ost.Candidate.command(["{scratch}/matmul"], build=["/bin/true", str(path), "-o", "{scratch}/matmul"])
    before = of(command)
    path.write_text("2")
    assert of(command) != before


def test_arguments_that_are_no_regular_files_are_left_alone(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")  # to open it would wait for ever
    words = ["/bin/true", str(tmp_path / "pipe"), str(tmp_path), "/dev/zero", "x" * 10_000, "{{\n"]
    assert of(ost.Candidate.command(words)) == of(ost.Candidate.command(words[:1]))


def test_a_program_that_may_only_be_executed_has_a_digest() -> None:
    script = """if True:
        import os, sys, ostinato as ost
        from ostinato.tune.store.key import Sources
        candidate = ost.Candidate.command([sys.argv[1]])
        if os.geteuid() == 0:
            os.setresuid(65534, 65534, 65534)
        try:
            open(sys.argv[1])
        except PermissionError:
            print(Sources().of(candidate))
    """
    with storing.public_directory() as directory:
        path = program(directory / "secret")
        path.chmod(0o111)
        found = subprocess.run([sys.executable, "-c", script, path], capture_output=True, text=True, timeout=60)
    assert found.returncode == 0, found.stderr
    assert len(found.stdout.strip()) == 32


def test_files_that_the_kernel_makes_up_are_not_read():
    uptime = ost.Candidate.command(["cat", "/proc/uptime"])
    assert Sources().of(ost.Candidate.command(["cat", "/proc/kmsg"]))  # reading it would wait
    before, text = Sources().of(uptime), Path("/proc/uptime").read_text()
    while Path("/proc/uptime").read_text() == text:
        time.sleep(0.001)
    assert Sources().of(uptime) == before
