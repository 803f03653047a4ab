"""The gRPC client of a completion server, and finding or starting the one on this machine."""
