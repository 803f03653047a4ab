"""The `midtoken` command."""
