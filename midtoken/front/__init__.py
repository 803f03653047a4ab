"""`midtoken serve --openai`: a port for editors that speak as to OpenAI, llama-server or Ollama."""
