"""From a completion request to the text that answers it."""
