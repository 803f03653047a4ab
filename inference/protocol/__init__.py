"""What travels between a client and a server: requests, answers, and their arrays."""
