"""What can go wrong while a vocabulary is read.

TrieCacheError
└── VocabularyError     the tokenizer's files are missing, broken, or of a kind that cannot be read as bytes
"""


class TrieCacheError(Exception):
    """Base of every error this package raises on purpose."""


class VocabularyError(TrieCacheError):
    """The tokenizer's files are missing, broken, or of a kind that cannot be read as bytes. The text names the file."""
