"""Searches that are described by a file."""
