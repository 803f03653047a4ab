"""The text that character-level models are measured with."""

from models.training.corpus import iter_held_out


def find_text(num_bytes: int) -> bytes:
    """Returns the beginning of the first held-out file, in the order of paths, that is ASCII and long enough."""
    for file in iter_held_out():
        if file.text.isascii() and len(file.text) >= num_bytes:
            return file.text[:num_bytes].encode()
    raise ValueError(f"no held-out file in ASCII has {num_bytes:,} bytes")
