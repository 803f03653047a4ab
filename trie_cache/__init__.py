"""What the vocabulary allows after a prefix: its tokens as bytes, sorted, and the masks made of them."""
