"""`midtoken serve --openai`: a port for editors that speak OpenAI's `/v1/completions` or llama-server's `/infill`."""
