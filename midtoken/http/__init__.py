"""The HTTP application: Triton's `generate`, what OpenAI, llama-server and Ollama speak, an operator's addresses."""
