"""Token bytes to text, in whole code points."""

import codecs


class Detokenizer:
    """Decodes UTF-8 incrementally, and drops the healed bytes at the beginning."""

    def __init__(self, num_healed_bytes: int) -> None:
        self._num_to_drop = num_healed_bytes
        self._decoder = codecs.getincrementaldecoder("utf-8")(errors="replace")

    def add(self, token_bytes: bytes) -> str:
        """The text that `token_bytes` completes. An incomplete code point is buffered until the next call."""
        dropped = min(self._num_to_drop, len(token_bytes))
        self._num_to_drop -= dropped
        return self._decoder.decode(token_bytes[dropped:])
