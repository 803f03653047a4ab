"""Draws text and its surprisal in a terminal or in a picture."""
