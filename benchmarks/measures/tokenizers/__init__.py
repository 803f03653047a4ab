"""Whether the product heals right with a tokenizer."""
