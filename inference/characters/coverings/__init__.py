"""One file for each way to follow token strings: by the text alone, or by mass."""
