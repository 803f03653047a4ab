"""The command that people type."""
