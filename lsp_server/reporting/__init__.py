"""What the user is told: the state, the reasons for no suggestion, errors, and counts."""
