"""Turns completion requests into text: prompt, scheduling, steps, candidates."""
