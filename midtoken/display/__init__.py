"""What subcommands draw in a terminal or a picture."""
