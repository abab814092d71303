"""The command line."""

from __future__ import annotations

import importlib.util
import os
import signal
import subprocess
import sys
import warnings
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path
from typing import NamedTuple

import click


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="ostinato")
def main() -> None:
    """Capture one step of array tasks, compile it, replay it at nanoseconds per task."""


@main.command()
@click.option(
    "--image",
    type=click.Path(exists=True, dir_okay=False, readable=True, path_type=Path),
    help="The photograph to denoise; by default one that matplotlib brings along.",
)
@click.option("--steps", type=click.IntRange(min=1), default=2000, show_default=True, help="Steps of diffusion.")
@click.option(
    "--output",
    type=click.Path(file_okay=False, path_type=Path),
    default=Path("demo-output"),
    show_default=True,
    help="Where the pictures go.",
)
@click.option("--tune/--no-tune", "tuned", default=True, help="Whether to measure variants of the kernel before.")
def demo(image: Path | None, steps: int, output: Path, tuned: bool) -> None:
    """Tune a kernel, and denoise a photograph with it in several ways, compared and timed."""
    missing = [name for name in ("numba", "matplotlib", "PIL") if importlib.util.find_spec(name) is None]
    if missing:
        what = " and ".join(missing)
        raise click.ClickException(f"the demo needs {what}: pip install 'ostinato[demo]'")
    from ostinato.demo import DemoError, show

    try:
        show.run(image, steps, output, tuned=tuned)
    except DemoError as error:
        raise click.ClickException(str(error)) from error


@main.command(context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False})
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED)
def bench(arguments: tuple[str, ...]) -> None:
    """Run the benchmarks, in the root of a clone; ARGUMENTS are theirs."""
    script = Path("benchmarks", "run.py")
    if not (script.is_file() and Path("src", "ostinato").is_dir()):
        raise click.ClickException(
            "the benchmarks are not part of the installed package: run this in the root of a clone of Ostinato's "
            f"repository (there is no {script} in {Path.cwd()})"
        )
    sys.exit(_run([os.fspath(script), *arguments], {}))


class _NotStarted(click.ClickException):
    """The search could not begin: a file, a device or the store is wrong."""

    exit_code = 2


@main.command()
@click.argument("file", type=click.Path(exists=True, dir_okay=False, readable=True, path_type=Path))
@click.option("--devices", help="Names with commas between, such as cpu:0,cpu:1; by default FILE's.")
@click.option("--anew", is_flag=True, help="Measure everything, also what the store knows.")
@click.option("--resume", is_flag=True, help="Take what the store knows. That is the default.")
@click.option(
    "--report",
    "reports",
    multiple=True,
    type=click.Path(dir_okay=False, writable=True, path_type=Path),
    help="Save the report as .html, .json or .csv; may be given several times.",
)
@click.option("--store", type=click.Path(dir_okay=False, path_type=Path), help="The store; by default FILE's.")
@click.option("--budget", type=click.FloatRange(min=0, min_open=True), help="Most seconds; by default FILE's.")
@click.option("--fleet", help="Measure on many hosts: ray, ray://HOST:PORT or mpi.")
def tune(
    file: Path,
    devices: str | None,
    anew: bool,
    resume: bool,
    reports: tuple[Path, ...],
    store: Path | None,
    budget: float | None,
    fleet: str | None,
) -> None:
    """Find the fastest candidate of a TOML file.

    What may be in FILE is shown by: python -m pydoc ostinato.tune.searching.job

    The exit status is 0 if there is a winner, 1 if no candidate is ok, 2 if the search could not begin, and 130 after
    Ctrl-C.
    """
    from ostinato.errors import OstinatoError
    from ostinato.tune.report.report import writer
    from ostinato.tune.searching.job import load, run

    if anew and resume:
        raise click.UsageError("--anew and --resume contradict each other: leave one out")
    try:
        for path in reports:
            writer(path)
            if not path.absolute().parent.is_dir():
                raise ValueError(f"cannot save a report as {os.fspath(path)!r}: its directory does not exist")
    except ValueError as error:
        raise _NotStarted(str(error)) from error
    try:
        report, interrupted = run(load(file), devices, anew=anew, store=store, seconds=budget, fleet=fleet)
    except (OstinatoError, ImportError) as error:
        raise _NotStarted(str(error)) from error
    if not _speaks(fleet):
        sys.exit(0 if report.best is not None else 1)
    click.echo(report.table(most=20))
    click.echo(f"\n{report.why()}")
    for path in reports:
        report.save(path)
        click.echo(f"report: {path}")
    if interrupted:
        how = "the same command without --anew" if anew else "the same command"
        click.echo(f"interrupted: {how} goes on from here", err=True)
        sys.exit(128 + signal.SIGINT)
    sys.exit(0 if report.best is not None else 1)


def _speaks(fleet: str | None) -> bool:
    """Whether this process prints what was found: of the ranks of MPI, the first does."""
    if fleet != "mpi":
        return True
    from mpi4py import MPI

    return bool(MPI.COMM_WORLD.rank == 0)


@main.command()
@click.option("--fleet", help="Those of many hosts: ray, ray://HOST:PORT or mpi.")
def devices(fleet: str | None) -> None:
    """List devices, who uses them, and the optional packages that are installed or missing."""
    if fleet is not None:
        _list_fleet(fleet)
        return
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    from ostinato.errors import DeviceError
    from ostinato.tune.leases.cpu import cpu_devices
    from ostinato.tune.leases.cuda import cuda_devices
    from ostinato.tune.leases.hip import hip_devices
    from ostinato.tune.leases.lock_file import holders, lease_directory
    from ostinato.tune.leases.opencl import opencl_devices

    console = Console()
    table = Table("Name", "Model", "Driver", "Identity", "Leased by", caption=f"Leases are in {lease_directory()}")
    held = {holder.identity: holder for holder in holders()}
    shown: set[str] = set()
    for find in (cuda_devices, hip_devices, opencl_devices, cpu_devices):
        try:
            found = find()
        except DeviceError as error:  # about these devices only
            console.print(Text(str(error)))
            continue
        for device in found:
            identity = device.identities[0]  # an OpenCL device that is the processor has those of cores besides
            holder = held.get(identity)
            shown.add(identity)
            cells = (device.name, device.model, device.driver, identity, "" if holder is None else str(holder))
            table.add_row(*map(Text, cells))
    for identity, holder in held.items():  # simulated devices, and those of others
        if identity in shown:
            continue
        table.add_row(*map(Text, ("", "", "", identity, str(holder))))
    console.print(table)
    for part in (*_drivers(), *_packages()):
        # Lines, and no table, which would cut commands.
        if part.found:
            click.echo(f"found    {part.name} {part.found} ({part.use})")
        else:
            click.echo(f"missing  {part.name} ({part.use})" + f": {part.advice}" * bool(part.advice))


class _Part(NamedTuple):
    """Something that Ostinato uses where it is installed."""

    name: str
    found: str  # its version, or how many devices it has; empty if it is missing
    use: str
    advice: str  # how to get it


# Distributions, what they are for, and how to get them.
_PACKAGES = (
    ("numba", "@ost.kernel", "pip install 'ostinato[numba]'"),
    ("matplotlib", "pictures of traces and of tuning results", "pip install 'ostinato[plot]'"),
    ("pillow", "the demo", "pip install 'ostinato[demo]'"),
    ("optuna", "a search strategy for the tuner", "pip install 'ostinato[optuna]'"),
    ("pyopencl", "OpenCL devices", "pip install 'ostinato[opencl]'"),
    ("cuda-core", "kernels compiled by NVRTC", "pip install 'ostinato[cuda]'"),
    ("mpi4py", "tuning on several hosts, and programs on several ranks", "pip install 'ostinato[mpi]'"),
    ("ray", "tuning on several hosts", "pip install 'ostinato[ray]'"),
)


def _packages() -> Iterator[_Part]:
    for name, use, advice in _PACKAGES:
        try:
            yield _Part(name, metadata.version(name), use, "")
        except metadata.PackageNotFoundError:
            yield _Part(name, "", use, advice)


def _drivers() -> Iterator[_Part]:
    from ostinato.devices.device import KINDS, reasons, usable
    from ostinato.ranks.launch import INSTALL_LIBRARY, find_mpiexec
    from ostinato.text import counted
    from ostinato.tune.leases.cuda import nvml, text

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # a driver that does not work is reported below
        found = {kind: counted(len(there), "device") if (there := usable(kind)) else "" for kind in KINDS}
    why = reasons()
    yield _Part("CUDA driver", found["cuda"], "CUDA devices", why.get("cuda", "no GPU with a driver: install NVIDIA's"))
    yield _Part("OpenCL driver", found["opencl"], "OpenCL devices", why.get("opencl", ""))
    library = nvml()
    driver = "" if library is None else text(library.nvmlSystemGetDriverVersion())
    yield _Part("NVML", driver, "which processes use a GPU", "NVIDIA's driver, and pip install 'ostinato[nvidia]'")
    yield _Part("MPI", find_mpiexec() or "", "starts ranks", INSTALL_LIBRARY)


def _list_fleet(name: str) -> None:
    from contextlib import closing

    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    from ostinato.errors import OstinatoError
    from ostinato.tune.fleet.engines import join

    try:
        with closing(join(name, "all", None, None)) as fleet:
            found = fleet.devices
    except (OstinatoError, ImportError, ValueError) as error:
        raise click.ClickException(str(error)) from error
    table = Table("Name", "Model", "Driver")
    for device in found:
        table.add_row(*map(Text, (device.name, device.model, device.driver)))
    if _speaks(name):
        Console().print(table)


@main.command(context_settings={"allow_interspersed_args": False})
@click.option("--output", type=click.Path(dir_okay=False, path_type=Path), help="By default SCRIPT.trace.json here.")
@click.argument("script", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED)
def trace(script: Path, arguments: tuple[str, ...], output: Path | None) -> None:
    """Run a Python script and trace every program it replays."""
    path = (output or Path(f"{script.stem}.trace.json")).absolute()
    before = _stamp(path)
    status = _run([os.fspath(script), *arguments], {"OSTINATO_TRACE": os.fspath(path)})
    if _stamp(path) != before:
        click.echo(f"trace: {path} (open it at https://ui.perfetto.dev)", err=True)
    elif status == 0:
        raise click.ClickException(f"{script} wrote no trace: did it replay a program?")
    sys.exit(status)


@main.command(context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False})
@click.argument("script", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED)
def top(script: Path, arguments: tuple[str, ...]) -> None:
    """Run a Python script and show what its programs do: steps per second, threads, devices.

    On a terminal that is a table, with what the script prints above it. Elsewhere it is a line a second on standard
    error. The exit status is the script's.
    """
    from ostinato.view.top import watch

    status, history = watch([os.fspath(script), *arguments], script.name)
    if history.machines:
        click.echo(history.whole(), err=True)
    elif status == 0:
        raise click.ClickException(f"{script} made no machine: did it compile a program?")
    sys.exit(status)


@main.command(context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False})
@click.option("-n", "size", type=click.IntRange(min=1), required=True, help="How many ranks.")
@click.argument("script", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED)
def run(size: int, script: Path, arguments: tuple[str, ...]) -> None:
    """Run a Python script on several ranks, with the mpiexec of the installed MPI.

    If a rank ends with an error, the others are ended, too. On clusters, use srun or mpiexec directly.
    """
    from ostinato.ranks.launch import find_launcher

    try:
        launcher = find_launcher()
    except ImportError as error:
        raise click.ClickException(str(error)) from error
    status = subprocess.call([*launcher, "-n", str(size), sys.executable, os.fspath(script), *arguments])
    sys.exit(status if status >= 0 else 128 - status)


def _run(command: list[str], environment: dict[str, str]) -> int:
    """Run a Python script and return what a shell would: its exit status, or 128 and the signal it died of."""
    status = subprocess.call([sys.executable, *command], env=os.environ | environment)
    return status if status >= 0 else 128 - status


def _stamp(path: Path) -> int | None:
    return path.stat().st_mtime_ns if path.exists() else None
