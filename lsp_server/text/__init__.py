"""The text of the open documents, positions in it, and the part that is sent."""
