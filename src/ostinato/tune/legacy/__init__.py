"""What `ostinato.profiler_runner` is made of, besides leases and reapers."""
