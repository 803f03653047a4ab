"""How results are computed and reported."""
