"""What tests ask of the engine's memory of sequences."""

from inference.engine.sequence_memory import SequenceMemory


def count_idle_bytes(memory: SequenceMemory) -> int:
    """The memory of the sequences that no request uses."""
    return sum(entry.nbytes for entry in memory._entries if not entry.is_in_use)
