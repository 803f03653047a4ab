"""How the bundled model was trained."""
