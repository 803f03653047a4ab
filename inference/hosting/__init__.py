"""Where an engine runs: in Triton, or in a process of its own, before the same gRPC service."""
