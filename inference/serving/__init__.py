"""Servers and their clients: starting, guarding, finding and calling them."""
