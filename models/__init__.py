"""The bundled model: its corpus, its training and what it is worth."""
