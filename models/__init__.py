"""The default model: its corpus, its training and what it is worth."""
