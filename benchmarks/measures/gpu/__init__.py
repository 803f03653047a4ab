"""The measurements of `benchmarks.engine_gpu`, one file for each."""
