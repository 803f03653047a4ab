"""Benchmarks of quality and speed. Each file answers one question; run it as `python -m benchmarks.NAME`."""
