"""Small tokenizers of many kinds, trained on a part of the standard library."""
