"""The texts, cursors and tokenizers that are measured on."""
