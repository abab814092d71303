"""Processes: reapers, warm workers and commands under them, what they report, and the loop that waits for all."""
