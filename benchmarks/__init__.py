"""What it costs and what it gives: one file per question, each run as `python -m benchmarks.NAME`."""
