"""The text that character models are measured on."""

from models.training.corpus import iter_held_out


def find_text(num_bytes: int) -> bytes:
    """The beginning of the first held-out file, in the order of paths, that is ASCII and so long."""
    for file in iter_held_out():
        if file.text.isascii() and len(file.text) >= num_bytes:
            return file.text[:num_bytes].encode()
    raise ValueError(f"no held-out file has {num_bytes:,} bytes")
