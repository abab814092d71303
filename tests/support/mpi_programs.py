"""Run by the ranks of an MPI job: random programs, each compared with what one rank plans and runs without MPI."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2]))

from tests.support.in_process_ranks import run_on
from tests.unit.ranks.test_programs_on_ranks import RandomProgram

import ostinato as ost

STEPS = 3


def main() -> None:
    first, end = map(int, sys.argv[1:3])
    ranks = ost.Ranks(transport=sys.argv[3])  # type: ignore[arg-type]
    for seed in range(first, end):
        program = RandomProgram(seed, near=seed % 2 == 0)
        record, spread, replicated = program(ranks)
        with ost.capture() as graph:
            graph.join(ranks)
            record()
        with graph.compile(adapt=False) as compiled:
            assert compiled.replay(STEPS) == STEPS
        got = [array.get().tobytes() for array in spread], [array.tobytes() for array in replicated]
        wanted = run_on(1, RandomProgram(seed, near=seed % 2 == 0), STEPS)
        assert got == (wanted[0], wanted[1]), f"program {seed} differs on rank {ranks.rank}"
    print(f"rank {ranks.rank} compared {end - first}", flush=True)


if __name__ == "__main__":
    main()
