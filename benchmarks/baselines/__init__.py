"""Other implementations that midtoken is compared with."""
