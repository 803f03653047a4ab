"""From a completion request to bytes that continue exactly what was typed."""
