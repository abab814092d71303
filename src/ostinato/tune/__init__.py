"""Measuring candidates on leased devices; `docs/architecture.md` says which part promises what.

Here: what the user gives (`candidate`, `space`, `strategies`, `policy`) and gets (`result`, `status`), and the search.
In folders: `lease` (devices and who holds them), `process` (reapers, workers, commands), `slots` (where one candidate
at a time runs), `worker` (the process in which callables are measured), `race` (who is cut, who wins), `store`
(what is remembered), `report` (what is shown), `job` (searches from files), `profiling` (for `profiler_runner`).
"""
