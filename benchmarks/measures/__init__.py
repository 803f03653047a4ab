"""How results are computed and written down."""
