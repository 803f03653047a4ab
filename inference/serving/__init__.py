"""Starts servers, watches them, finds the one that runs, and calls it."""
