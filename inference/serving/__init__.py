"""Starts, supervises and finds completion servers, and calls them."""
