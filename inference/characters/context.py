"""The end of a context that is longer than the model's window."""


def cut_context(context: bytes, max_bytes: int) -> bytes:
    """The last `max_bytes` of the context, or up to an eighth more; a shorter context is returned whole.

    The result begins at the start of a line if there is one in that eighth, otherwise at the start of a character.
    The cut can change the first few pre-tokens after it, so request more bytes than are needed.
    """
    spare = max_bytes // 8
    last_start = len(context) - max_bytes
    if last_start <= spare:
        return context
    line_start = context.rfind(b"\n", last_start - spare, last_start) + 1
    if line_start:
        return context[line_start:]
    start = last_start
    while last_start - start < 3 and context[start] & 0xC0 == 0x80:  # inside a character
        start -= 1
    return context[start:]
