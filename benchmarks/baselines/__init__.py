"""What the project is compared with."""
