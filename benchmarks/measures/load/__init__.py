"""Many simulated editors on one completion server."""
