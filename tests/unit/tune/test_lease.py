"""One lease: taken, waited for, given back, inherited by forked children; and lock files that are no good."""

from __future__ import annotations

import copy
import fcntl
import json
import math
import os
import pickle
import resource
import signal
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from leases import Other, in_child, lease_of
from ostinato.errors import DeviceError
from ostinato.tune.leases import lease as leasing
from ostinato.tune.leases import lock_file
from ostinato.tune.leases.lock_file import Holder, holders

NOBODY = 65534


@pytest.fixture
def directory() -> Path:
    return Path(os.environ["OSTINATO_LEASE_DIR"])


def free(*identities: str) -> bool:
    """Whether the lease can be had; it is given back at once."""
    lease = lease_of(identities)
    if lease.try_acquire() is not None:
        return False
    lease.release()
    return True


def opened() -> list[str]:
    """The lock files that this process has open."""
    found = []
    for name in os.listdir("/proc/self/fd"):
        try:
            target = os.readlink(f"/proc/self/fd/{name}")
        except FileNotFoundError:  # that of the directory itself
            continue
        if target.endswith(".lock"):
            found.append(target)
    return found


def test_a_lease_is_held_until_it_is_released() -> None:
    lease = lease_of(["a"])
    assert lease.files == ()
    assert free("a")
    assert lease.try_acquire() is None
    assert len(lease.files) == len(opened()) == 1
    assert not free("a")
    lease.release()
    assert (lease.files, opened()) == ((), [])
    assert free("a")
    lease.release()  # nothing to do
    with lease:
        assert not free("a")
    assert free("a")


def test_the_second_learns_that_the_holder_is_this_process() -> None:
    with lease_of(["a"]) as lease:
        for other in (lease_of(["a"]), lease):
            holder = other.try_acquire()
            assert holder is not None
            assert (holder.identity, holder.pid, holder.running) == ("a", os.getpid(), True)
            assert str(holder).startswith("this process since 20")
        assert not free("a")
        assert len(opened()) == 1


def test_the_second_learns_which_other_process_holds_it() -> None:
    with Other() as other:
        assert other("attempt", ["a"]) is None
        holder = lease_of(["a"]).try_acquire()
        assert holder is not None
        assert (holder.pid, holder.running) == (other.pid, True)
        assert holder.command.startswith(f"{sys.executable} -c ")
        assert str(holder).startswith(f"pid {other.pid} ({sys.executable} -c ")
        assert holders() == [holder]
        other("release", ["a"])
        assert free("a")


def test_files_are_not_inherited_by_programs() -> None:
    with lease_of(["a", "b"]) as lease:
        assert [os.get_inheritable(file) for file in lease.files] == [False, False]


def test_waiting_ends_when_the_holder_gives_it_back() -> None:
    first, second = lease_of(["a"]), lease_of(["a"])
    first.acquire()
    told: list[Holder] = []
    waits, has = threading.Event(), threading.Event()

    def waiting(holder: Holder) -> None:
        told.append(holder)
        waits.set()

    def wait() -> None:
        second.acquire(waiting=waiting)
        has.set()

    thread = threading.Thread(target=wait)
    thread.start()
    assert waits.wait(60)
    assert not has.is_set()
    first.release()
    thread.join(60)
    assert has.is_set()
    assert [holder.pid for holder in told] == [os.getpid()]
    second.release()


def test_who_waits_is_told_once(monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[Holder] = []
    pauses: list[float] = []
    first, second = lease_of(["a"]), lease_of(["a"])
    first.acquire()

    def sleep(seconds: float) -> None:
        pauses.append(seconds)
        if len(pauses) == 10:
            first.release()

    monkeypatch.setattr(leasing.time, "sleep", sleep)
    second.acquire(waiting=told.append)
    second.release()
    assert len(told) == 1
    assert pauses == sorted(pauses)
    assert (pauses[0], pauses[-1]) == (0.02, 0.2)


def test_a_lock_without_a_name_is_asked_again(directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It may be that of somebody who only looks, or who is about to give it back."""
    assert free("a")
    with (directory / "a.lock").open() as looking:
        fcntl.flock(looking, fcntl.LOCK_SH)
        monkeypatch.setattr(leasing.time, "sleep", lambda seconds: fcntl.flock(looking, fcntl.LOCK_UN))
        assert free("a")


def test_who_waits_is_told_when_the_holder_is_another() -> None:
    told: list[int | None] = []
    with Other() as first, Other() as second:
        first("attempt", ["a"])

        def waiting(holder: Holder) -> None:
            told.append(holder.pid)
            if holder.pid == first.pid:
                first("release", ["a"])
                second("attempt", ["a"])
            else:
                second("release", ["a"])

        lease = lease_of(["a"])
        lease.acquire(timeout=60, waiting=waiting)
        lease.release()
        assert told == [first.pid, second.pid]


@pytest.mark.parametrize("timeout", [0, 0.03])
def test_waiting_that_takes_too_long_names_the_holder(timeout: float) -> None:
    with Other() as other:
        other("attempt", ["a"])
        with pytest.raises(TimeoutError, match=rf"^a is still held .* pid {other.pid} \(.*\) since "):
            lease_of(["a"]).acquire(timeout)


def test_a_callback_that_raises_ends_the_waiting() -> None:
    def waiting(holder: Holder) -> None:
        raise KeyboardInterrupt

    with lease_of(["a"]):
        lease = lease_of(["a"])
        with pytest.raises(KeyboardInterrupt):
            lease.acquire(waiting=waiting)
        assert lease.files == ()


def test_the_kernel_gives_back_what_a_killed_process_held() -> None:
    with Other() as survivor:
        other = Other()
        other("attempt", ["a", "b"])
        other.kill()
        assert holders() == []
        assert survivor("attempt", ["b"]) is None


def test_duplicates_keep_a_killed_process_s_device_until_they_are_closed() -> None:
    """So a supervisor holds it while it ends what runs there."""
    other = Other()
    other("attempt", ["a"])
    supervisor = other("duplicate")
    other.kill()
    try:
        holder = lease_of(["a"]).try_acquire()
        assert holder is not None
        assert (holder.pid, holder.running) == (other.pid, False)
        assert "has ended" in str(holder)
        assert holders() == [holder]
    finally:
        os.kill(supervisor, signal.SIGKILL)
    lease = lease_of(["a"])
    lease.acquire(timeout=60)
    lease.release()


def test_releasing_does_not_wait_for_duplicates() -> None:
    with Other() as other:
        other("attempt", ["a"])
        supervisor = other("duplicate")
        other("release", ["a"])
        assert free("a")
        os.kill(supervisor, signal.SIGKILL)


@pytest.mark.forks
def test_a_forked_child_neither_holds_nor_releases() -> None:
    held, idle = lease_of(["a"]), lease_of(["b"])
    held.acquire()
    uses: dict[str, Callable[[], object]] = {
        "try_acquire": held.try_acquire,
        "acquire": held.acquire,
        "release": held.release,
        "files": lambda: held.files,
        "idle": idle.try_acquire,
        "idle release": idle.release,
    }
    for use in uses.values():
        kind, message = in_child(use)
        assert kind == "RuntimeError"
        assert str(os.getpid()) in message
    assert in_child(opened) == []
    assert not in_child(lambda: free("a"))
    assert in_child(lambda: free("b"))
    assert len(held.files) == 1
    assert not free("a")
    held.release()


@pytest.mark.forks
def test_a_forked_child_may_leave_the_block() -> None:
    class Done(Exception):
        """What the child does there."""

    def leave() -> None:
        lease.__exit__(None, None, None)
        raise Done

    with lease_of(["a"]) as lease:
        assert in_child(leave) == ("Done", "")
        assert not free("a")
    assert free("a")


@pytest.mark.forks
def test_a_forked_child_does_not_keep_the_device_of_a_killed_parent() -> None:
    other = Other()
    other("attempt", ["a"])
    child = other("fork")
    os.kill(other.pid, signal.SIGKILL)
    other.process.wait()
    try:
        assert free("a")
        os.kill(child, 0)  # it lives
    finally:
        os.kill(child, signal.SIGKILL)
        other.close()


@pytest.mark.forks
def test_a_child_forked_while_another_thread_takes_leases_inherits_none() -> None:
    stop = threading.Event()

    def churn() -> None:
        lease = lease_of(["a", "b", "c"])
        while not stop.is_set():
            assert lease.try_acquire() is None
            lease.release()

    thread = threading.Thread(target=churn)
    thread.start()
    try:
        for _ in range(50):
            assert in_child(opened) == []
    finally:
        stop.set()
        thread.join()


def test_threads_that_share_a_lease_have_it_one_at_a_time() -> None:
    lease, inside, most = lease_of(["a"]), 0, 0

    def use() -> None:
        nonlocal inside, most
        for _ in range(20):
            while lease.try_acquire() is not None:
                os.sched_yield()
            inside += 1
            most = max(most, inside)
            inside -= 1
            lease.release()

    threads = [threading.Thread(target=use) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert most == 1


def test_a_lease_that_is_dropped_warns_and_leaves_the_device_to_duplicates() -> None:
    lease = lease_of(["a"])
    lease.acquire()
    duplicate = os.dup(lease.files[0])
    with pytest.warns(ResourceWarning, match="the lease of a was never released"):
        del lease
    assert not free("a")
    os.close(duplicate)
    assert free("a")


@pytest.mark.parametrize("copied", [copy.copy, copy.deepcopy, pickle.dumps])
def test_a_lease_is_not_copied(copied: Callable) -> None:
    with pytest.raises(TypeError, match="held twice"):
        copied(lease_of(["a"]))


# Lock files and their directory


def test_everybody_may_use_what_one_user_made(directory: Path) -> None:
    before = os.umask(0o077)
    try:
        assert free("a")
    finally:
        os.umask(before)
    assert directory.stat().st_mode & 0o7777 == 0o1777
    assert (directory / "a.lock").stat().st_mode & 0o7777 == 0o666


@pytest.mark.forks
@pytest.mark.skipif(os.getuid() != 0, reason="needs two users")
def test_users_exclude_each_other(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    with Shared() as directory:
        monkeypatch.setenv("OSTINATO_LEASE_DIR", str(directory / "leases"))
        with lease_of(["mine"]):
            assert not in_child(lambda: free("mine"), NOBODY)
            assert in_child(lambda: [holder.pid for holder in holders()], NOBODY) == [os.getpid()]
            assert in_child(lambda: free("mine", "theirs"), NOBODY) is False
        assert in_child(lambda: free("mine"), NOBODY)
        assert in_child(lambda: free("theirs"), NOBODY)
        assert (directory / "leases" / "theirs.lock").stat().st_uid == NOBODY
        assert free("theirs")


class Shared:
    """A directory that every user can reach, which pytest's are not."""

    def __enter__(self) -> Path:
        import tempfile

        self.made = tempfile.TemporaryDirectory()
        path = Path(self.made.name)
        path.chmod(0o1777)
        return path

    def __exit__(self, *error: object) -> None:
        self.made.cleanup()


@pytest.mark.forks
def test_a_file_that_may_only_be_read_locks_all_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    def hold() -> list:
        lease = lease_of(["a"])
        first = lease.try_acquire()
        other = lease_of(["a"]).try_acquire()
        seen = [str(holder) for holder in holders()]
        lease.release()
        return [first, other and str(other), seen, free("a")]

    with Shared() as directory:
        monkeypatch.setenv("OSTINATO_LEASE_DIR", str(directory))
        (directory / "a.lock").touch(0o444)
        unknown = "a process that left no name"
        assert in_child(hold, NOBODY) == [None, unknown, [unknown], True]


@pytest.mark.forks
@pytest.mark.parametrize("what", ["file", "directory"])
def test_what_may_not_be_used_is_named(what: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with Shared() as directory:
        monkeypatch.setenv("OSTINATO_LEASE_DIR", str(directory))
        if what == "file":
            (directory / "a.lock").touch(0)
        else:
            directory.chmod(0o555)
        kind, message = in_child(lambda: free("a"), NOBODY)
        directory.chmod(0o700)
    assert kind == "DeviceError"
    for part in (f"{directory}/a.lock", "Permission denied", "OSTINATO_LEASE_DIR", "chmod 1777"):
        assert part in message


@pytest.mark.forks
def test_a_file_that_another_user_is_just_making_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    with Shared() as directory:
        monkeypatch.setenv("OSTINATO_LEASE_DIR", str(directory))
        path = directory / "a.lock"
        path.touch(0)
        tries: list[float] = []

        def sleep(seconds: float) -> None:
            tries.append(seconds)
            if len(tries) == 3:
                path.chmod(0o666)

        monkeypatch.setattr(lock_file.time, "sleep", sleep)
        if os.getuid() == 0:
            path.chmod(0)
            os.chown(path, NOBODY, NOBODY)
        assert in_child(lambda: [free("a"), len(tries)], NOBODY) == [True, 3]


def test_a_file_that_somebody_makes_at_the_same_time_is_theirs(
    directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    system_open = os.open

    def open_second(path: str, flags: int, mode: int = 0o777, *, dir_fd: int | None = None) -> int:
        if flags & os.O_CREAT:
            os.close(system_open(directory / "a.lock", flags, 0o640))
        return system_open(path, flags, mode, dir_fd=dir_fd)

    monkeypatch.setattr(lock_file.os, "open", open_second)
    assert free("a")
    assert (directory / "a.lock").stat().st_mode & 0o777 == 0o640


@pytest.mark.parametrize("kind", ["link", "fifo", "directory", "device"])
def test_what_is_no_lock_file_is_refused_and_left_alone(kind: str, directory: Path, tmp_path: Path) -> None:
    directory.mkdir()
    place, victim = directory / "a.lock", tmp_path / "victim"
    victim.write_text("precious")
    match kind:
        case "link":
            place.symlink_to(victim)
        case "fifo":
            os.mkfifo(place)
        case "directory":
            place.mkdir()
        case "device":
            place.symlink_to("/dev/null")
    with pytest.raises(DeviceError, match=str(place)):
        lease_of(["a"]).try_acquire()
    assert holders() == []
    assert victim.read_text() == "precious"
    assert opened() == []


@pytest.mark.parametrize("content", ["precious", ""])
def test_another_name_of_a_lock_file_keeps_nobody_out(content: str, directory: Path, tmp_path: Path) -> None:
    """Anybody can give it one; and what has one may be somebody's data."""
    directory.mkdir(0o1777)
    victim = tmp_path / "victim"
    victim.write_text(content)
    (directory / "a.lock").hardlink_to(victim)
    with lease_of(["a"]):
        assert not free("a")
        assert victim.read_text() == content
        assert holders() == [Holder("a")]
    assert victim.read_text() == content
    assert free("a")


def test_a_file_that_was_somebodys_data_is_not_written_to(directory: Path) -> None:
    directory.mkdir()
    (directory / "a.lock").write_text("precious")
    with lease_of(["a"]):
        assert not free("a")
    assert (directory / "a.lock").read_text() == "precious"


@pytest.mark.skipif(os.getuid() != 0, reason="needs two users")
def test_a_directory_of_another_user_is_refused(directory: Path) -> None:
    directory.mkdir()
    os.chown(directory, NOBODY, NOBODY)
    directory.chmod(0o1777)
    with pytest.raises(DeviceError, match=rf"{directory}, which belongs to user {NOBODY}, .* OSTINATO_LEASE_DIR"):
        free("a")
    assert not list(directory.iterdir())
    os.chown(directory, 0, 0)
    assert free("a")


@pytest.mark.parametrize("mode", [0o777, 0o775])
def test_a_directory_where_others_may_remove_locks_is_refused(mode: int, directory: Path) -> None:
    directory.mkdir()
    directory.chmod(mode)
    with pytest.raises(DeviceError, match=r"may be written to by others.* chmod 1777"):
        free("a")
    directory.chmod(mode | 0o1000)
    assert free("a")


def test_a_link_that_leads_nowhere_is_not_followed(directory: Path, tmp_path: Path) -> None:
    directory.mkdir()
    (directory / "a.lock").symlink_to(tmp_path / "made")
    with pytest.raises(DeviceError, match="symbolic link"):
        lease_of(["a"]).try_acquire()
    assert not (tmp_path / "made").exists()


def test_the_default_directory_is_not_a_link(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "link").symlink_to("elsewhere")
    monkeypatch.setattr(lock_file, "DEFAULT_DIRECTORY", str(tmp_path / "link"))
    monkeypatch.delenv("OSTINATO_LEASE_DIR")
    with pytest.raises(DeviceError, match="OSTINATO_LEASE_DIR"):
        free("a")
    assert not list((tmp_path / "elsewhere").iterdir())
    monkeypatch.setenv("OSTINATO_LEASE_DIR", str(tmp_path / "link"))  # who says so may mean a link
    assert free("a")


@pytest.mark.parametrize("where", ["relative", "missing/below", "file"])
def test_directories_that_cannot_be(where: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("OSTINATO_LEASE_DIR", where if where == "relative" else str(tmp_path / where))
    with pytest.raises(DeviceError, match="OSTINATO_LEASE_DIR"):
        lease_of(["a"]).try_acquire()
    assert not (tmp_path / "relative").exists()


def test_nothing_is_held_where_there_is_no_directory(directory: Path) -> None:
    assert holders() == []
    assert not directory.exists()


def test_a_file_that_is_removed_while_it_is_locked_is_made_again(
    directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    flock = lock_file.fcntl.flock
    removed = []

    def remove_first(file: int, how: int) -> None:
        if not removed:
            removed.append(os.unlink(directory / "a.lock"))
        flock(file, how)

    monkeypatch.setattr(lock_file.fcntl, "flock", remove_first)
    with lease_of(["a"]):
        assert removed
        assert not free("a")
    assert opened() == []


def test_a_file_that_is_removed_whenever_it_is_made(directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lock_file.fcntl, "flock", lambda file, how: os.unlink(directory / "a.lock"))
    with pytest.raises(DeviceError, match="removes it"):
        lease_of(["a"]).try_acquire()
    assert opened() == []


@given(
    content=st.binary(max_size=60) | st.sampled_from([b"{}", b"[]", b"1", b"[" * 5000, b'{"pid": 1}', b"\xff\n", b""])
)
@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_garbage_in_a_file_harms_nobody(directory: Path, content: bytes) -> None:
    with lease_of(["a"]):
        (directory / "a.lock").write_bytes(content)
        holder = lease_of(["a"]).try_acquire()
        assert holder == Holder("a")
        assert holders() == [holder]
    assert free("a")


@pytest.mark.parametrize(
    "changed",
    [{"pid": -1}, {"pid": 0}, {"started": 1}, {"pid": 2**80}, {"since": 1e300}, {"since": math.nan}, {"since": -1}],
)
def test_numbers_that_no_process_has(directory: Path, changed: dict) -> None:
    with lease_of(["a"]):
        record = json.loads((directory / "a.lock").read_text())
        (directory / "a.lock").write_text(json.dumps(record | changed))
        (holder,) = holders()
        assert not holder.running
        assert str(holder)


def test_a_file_cannot_make_a_terminal_obey(directory: Path) -> None:
    with lease_of(["a"]):
        record = json.loads((directory / "a.lock").read_text())
        record["command"] = "\x1b]0;owned\x07\nrm\u202e"
        record["pid"] += 1
        (directory / "a.lock").write_text(json.dumps(record))
        (holder,) = holders()
        assert str(holder).isprintable()


@pytest.mark.forks
def test_a_full_disk_does_not_keep_anybody_from_locking() -> None:
    def hold() -> list:
        resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))
        lease = lease_of(["a"])
        answers = [lease.try_acquire(), free("a")]
        lease.release()
        return [*answers, free("a")]

    assert in_child(hold) == [None, False, True]


@pytest.mark.forks
def test_a_process_without_descriptors_left_holds_nothing() -> None:
    def hold() -> list:
        lowest = os.open("/", os.O_RDONLY)
        resource.setrlimit(resource.RLIMIT_NOFILE, (lowest + 3, resource.getrlimit(resource.RLIMIT_NOFILE)[1]))
        os.close(lowest)
        try:
            lease_of(["a", "b", "c", "d"]).try_acquire()
        except OSError as error:
            return [type(error).__name__, error.strerror, free("a")]
        return []

    assert in_child(hold) == ["OSError", "Too many open files", True]


def test_a_long_command_of_a_holder_is_shortened():
    said = str(Holder("a", 7, "python" + " --flag" * 500))
    assert said.startswith("pid 7 (python --flag --flag")
    assert len(said) < 200
