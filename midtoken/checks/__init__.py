"""The checks of `midtoken doctor`: each returns what it found, and what to do where something is wrong."""
