"""What the engine has read: the tokens of a sequence with their nodes, and the sequences kept between requests."""
