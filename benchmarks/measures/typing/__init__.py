"""Replays of typing: an editor, a language server that records, and where the time of each key went."""
