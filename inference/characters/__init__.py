"""A language model as a model of bytes (Vieira et al. 2025)."""
