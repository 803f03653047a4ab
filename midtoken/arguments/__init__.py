"""Command-line arguments that several subcommands share."""
