"""Tokenizers of many kinds: small ones that are trained here, and real ones that packages contain."""
