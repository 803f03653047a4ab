"""What is done to the model's text before an editor shows it: one small function for each fault, in a fixed order."""
