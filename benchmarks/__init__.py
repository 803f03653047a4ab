"""How good and how fast midtoken is: one file for each question, run as `python -m benchmarks.NAME`."""
