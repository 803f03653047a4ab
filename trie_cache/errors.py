"""Errors raised while a vocabulary is read.

TrieCacheError
└── VocabularyError     the tokenizer's files are missing, malformed or of an unsupported kind
"""


class TrieCacheError(Exception):
    """Base class of the errors that this package raises on purpose."""


class VocabularyError(TrieCacheError):
    """The tokenizer's files are missing, malformed or of an unsupported kind. The message names the file."""
