"""Exact healing on an engine that runs elsewhere and has the weights: its own interface is asked for probabilities."""
