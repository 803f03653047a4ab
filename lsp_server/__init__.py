"""From an editor to a completion request and back."""
