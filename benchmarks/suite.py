"""Run benchmarks, print their tables, and write JSON and pictures."""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Sequence
from importlib.util import find_spec
from pathlib import Path

from rich.console import Console

import ostinato as ost
from benchmarks import (
    adapting,
    applications,
    before,
    compile_cost,
    cores,
    cuda_graphs,
    device_chains,
    device_pipeline,
    device_run_ahead,
    eager_calls,
    events,
    first_times,
    fixed_costs,
    fleet,
    free_tasks,
    function_cost,
    graph_tuning,
    irregular,
    memory,
    metg,
    native,
    pays,
    peers,
    placement,
    ported_chain,
    profiling,
    python_tasks,
    ranks,
    retuning,
    scaling,
    simulation,
    submitting,
    tuning,
    unchained,
    validated,
    watching,
)
from benchmarks.context import Context
from benchmarks.machine import OthersLoad, describe
from benchmarks.reach import targets
from benchmarks.tables import print_benchmark, print_targets, write_json

#: By name: what it is called in tables, and what runs it. Ray's processes come with `python`, so it is last.
BENCHMARKS: dict[str, tuple[str, Callable[[Context], None]]] = {
    "native": ("Empty native tasks", native.run),
    "validated": ("Native tasks that check what they read", validated.run),
    "metg": ("Smallest effective grain", metg.run),
    "fixed": ("Fixed costs", fixed_costs.run),
    "first": ("The first compile of a process", first_times.run),
    "eager": ("Calls outside captures", eager_calls.run),
    "before": ("Beside the version before", before.run),
    "submit": ("Calls of submit", submitting.run),
    "ports": ("A chain with ports and parameters", ported_chain.run),
    "profile": ("Profiles", profiling.run),
    "top": ("What `ostinato top` costs", watching.run),
    "events": ("Spawned tasks and events", events.run),
    "memory": ("Memory", memory.run),
    "unchained": ("Memory over unchained runs and spawned tasks", unchained.run),
    "compile": ("Capture and compile", compile_cost.run),
    "function": ("Compiling a function", function_cost.run),
    "irregular": ("Irregular durations", irregular.run),
    "placement": ("Placement by costs", placement.run),
    "simulation": ("Predicted and measured", simulation.run),
    "retune": ("Retuning", retuning.run),
    "adapt": ("Adapting", adapting.run),
    "cores": ("Cores that others use", cores.run),
    "pays": ("When it pays", pays.run),
    "graphtune": ("Tuning a graph", graph_tuning.run),
    "tuning": ("The tuner", tuning.run),
    "devices": ("One core and two, examples/tune_matmul", tuning.run_devices),
    "fleet": ("A fleet of simulated hosts", fleet.run),
    "chains": ("Tiny kernels on a device", device_chains.run),
    "runahead": ("Run-ahead of a device", device_run_ahead.run),
    "pipeline": ("Photographs through a device", device_pipeline.run),
    "cuda": ("Beside CUDA's graphs", cuda_graphs.run),
    "applications": ("Applications", applications.run),
    "pure": ("Independent tasks of pure Python", free_tasks.run),
    "ranks": ("Python tasks on ranks", ranks.run),
    "scaling": ("Messages between ranks, and many ranks by a model", scaling.run),
    "python": ("Empty Python tasks", python_tasks.run),
}


def main(argv: Sequence[str]) -> int:
    """Run the benchmarks named on the command line, or all."""
    parser = argparse.ArgumentParser(prog="ostinato bench", description="Benchmarks of Ostinato beside its peers.")
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"of {', '.join(BENCHMARKS)}; by default all")
    parser.add_argument("--quick", action="store_true", help="fewer and shorter samples, smaller sizes")
    parser.add_argument("--json", type=Path, metavar="PATH", help="write every sample here")
    parser.add_argument("--pictures", type=Path, metavar="DIRECTORY", help="draw pictures here (needs matplotlib)")
    parser.add_argument(
        "--before", type=Path, metavar="PYTHON", help="the Python of an environment with another version"
    )
    parser.add_argument(
        "--case",
        action="append",
        default=[],
        metavar="TEXT",
        help="of adapt, applications, cores and pays, only the cases whose names contain TEXT; may be given again",
    )
    options = parser.parse_args(argv)
    if unknown := set(options.names) - set(BENCHMARKS):
        parser.error(f"no benchmark is called {', '.join(sorted(unknown))}; there are {', '.join(BENCHMARKS)}")
    if "before" in options.names and not options.before:
        parser.error("before needs --before PYTHON, the interpreter of an environment with another version of Ostinato")
    if options.pictures and not find_spec("matplotlib"):
        parser.error("pictures need matplotlib: pip install 'ostinato[bench]'")

    console = Console()
    if not console.is_terminal:
        console = Console(width=160)
    found, absent = peers.load()
    description = describe(found)
    console.print(description["machine"], description["versions"])
    others: dict[str, float] = {}
    with ost.Machine(cpus=2, gpus=0) as machine:
        context = Context(machine, found, peers.Kernels(), options.quick, absent, options.before, tuple(options.case))
        for name, (title, run) in BENCHMARKS.items():
            if options.names and name not in options.names:
                continue
            begin, before = time.monotonic(), len(context.rows)
            with OthersLoad() as load:
                run(context)
            others[name] = load.share
            print_benchmark(console, title, context.rows[before:])
            console.print(
                f"{name}: {time.monotonic() - begin:.1f} s; other processes used {load.share:.0%} of the machine"
                + ("; [red]do not trust times[/]" if load.share > 0.05 else "")
            )
    if options.case and not context.rows:
        parser.error(f"--case must be part of a case's name; none of those run contains {' or '.join(options.case)}")
    for missing in context.absent:
        console.print(f"absent: {missing.name}: {missing.reason}", style="yellow", markup=False)
    reached = targets(context.rows)
    if reached:
        print_targets(console, reached)
    description["versions"] |= context.versions
    description |= {"others_load": others, "absent": {a.name: a.reason for a in context.absent}}
    if options.json:
        write_json(options.json, description, context.rows, reached)
        console.print(f"samples: {options.json}")
    if options.pictures:
        from benchmarks import pictures

        for path in pictures.draw(context.rows, options.pictures):
            console.print(f"picture: {path}")
    return 0
