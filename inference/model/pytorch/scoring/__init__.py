"""What a choice must know of rows of logits, and how it is computed. Nothing is chosen here.

token_ranks   the vocabulary on the device: which tokens an interval contains, which ids are no tokens
batch         the questions of one choice, packed, so that one copy takes them to the device and one brings the answers
noise         the numbers that draws use: the same on every device
plain_scorer  the answers with torch's own operations; the kernels of `inference.model.pytorch.kernels` are the fast way
"""
