"""Computing results and writing reports."""
