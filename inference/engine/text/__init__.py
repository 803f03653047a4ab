"""From tokens to text: whole code points, and where the text of a completion ends."""
