"""Benchmarks of Ostinato beside hand-written C++ and other runtimes; ``python -m benchmarks.run`` runs them."""
