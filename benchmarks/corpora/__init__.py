"""The texts, cursors and tokenizers that benchmarks measure with."""
