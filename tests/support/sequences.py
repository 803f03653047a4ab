"""What tests ask of the engine's cache of sequences."""

from inference.engine.prefix_cache import PrefixCache


def count_idle_bytes(cache: PrefixCache) -> int:
    """The memory of the sequences that no request uses."""
    return sum(entry.nbytes for entry in cache._entries if not entry.is_in_use)
