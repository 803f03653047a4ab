"""Text to tokens: the heal point, and the tree of token paths that cover the healed bytes."""
