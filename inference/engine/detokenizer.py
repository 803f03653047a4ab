"""Token bytes to text, never half a code point."""

import codecs


class Detokenizer:
    """Decodes a growing run of bytes as UTF-8 and drops the healed bytes at its beginning."""

    def __init__(self, num_healed_bytes: int) -> None:
        self._num_to_drop = num_healed_bytes
        self._decoder = codecs.getincrementaldecoder("utf-8")(errors="replace")

    def add(self, token_bytes: bytes) -> str:
        """The text that `token_bytes` completes. Bytes of an unfinished code point wait for the rest."""
        dropped = min(self._num_to_drop, len(token_bytes))
        self._num_to_drop -= dropped
        return self._decoder.decode(token_bytes[dropped:])
