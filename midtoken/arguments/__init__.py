"""Command-line arguments that several subcommands share, and what they stand for."""
