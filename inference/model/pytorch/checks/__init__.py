"""Checks when a model is loaded: whether it can be run here with the right results."""
