"""Running a job, interrupted or not."""

from __future__ import annotations

import dataclasses
import os
import sys

from ostinato.tune.job.job import Job, JobError
from ostinato.tune.progress import listener
from ostinato.tune.report.report import Report
from ostinato.tune.report.so_far import SoFar
from ostinato.tune.tuner import Tuner

__all__ = ["run"]


def run(
    job: Job,
    devices: str | None = None,
    *,
    anew: bool = False,
    store: str | os.PathLike[str] | None = None,
    seconds: float | None = None,
) -> tuple[Report, bool]:
    """Run a job and return what was found, and whether it was interrupted (Ctrl-C): then what was found until then.

    The job's directories are put before the others where modules are found.

    Parameters
    ----------
    job
        The job.
    devices, store, seconds
        In place of the job's.
    anew
        Whether everything is measured, also what the store knows.

    Raises
    ------
    JobError
        If a device's name means nothing, or a strategy cannot be had.
    OstinatoError
        If the search cannot begin for another reason: a device is not there, the store cannot be used.
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
