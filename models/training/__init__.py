"""How the default model was trained."""
