"""The tokens that may follow a prefix: the vocabulary as sorted bytes, and the allowed sets found in it."""
