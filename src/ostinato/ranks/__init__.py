"""Ranks: the processes of an MPI job, which run one program together."""
