"""`midtoken serve --openai`: a port for editors that speak as to OpenAI, llama-server, Ollama, Mistral or Tabby."""
