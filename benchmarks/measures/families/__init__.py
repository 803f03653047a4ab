"""Whether the product runs a model as transformers does."""
