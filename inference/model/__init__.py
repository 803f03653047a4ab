"""A language model on its device: forward passes, keys and values, and the choice of tokens."""
