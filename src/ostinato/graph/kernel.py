"""Tasks compiled by Numba."""
