"""How text and its surprisal are drawn in a terminal or in a picture."""
