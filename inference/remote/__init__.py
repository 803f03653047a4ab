"""Exact healing with an inference server that has the weights: its own interface is asked for probabilities."""
