"""From a request to the tokens of its first forward pass."""
