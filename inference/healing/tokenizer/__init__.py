"""Loads a folder's tokenizer as a text encoder, or refuses it by name."""
