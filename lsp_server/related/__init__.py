"""Text of other open files that helps to complete a line: which declarations, in which order, within which budget."""
