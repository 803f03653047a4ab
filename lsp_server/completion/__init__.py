"""From a question to its answer: the connection to the completion server, and the generations of each document."""
