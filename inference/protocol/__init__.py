"""Requests and answers between clients and servers, as dataclasses and as arrays."""
