"""Command-line arguments that several subcommands share, and the objects that are built from them."""
