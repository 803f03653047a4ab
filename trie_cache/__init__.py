"""The tokens that may follow a prefix: the vocabulary as sorted bytes, and intervals of it."""
