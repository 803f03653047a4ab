"""Tiny models of every family of causal decoders, with random weights."""
