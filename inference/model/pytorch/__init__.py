"""A runner on torch, with the models of transformers: for other families than those of `onnx`, and for GPUs.

loader       a model folder for torch; refuses models that would give wrong results
model        the engine's interface to a model, with the runner and a sampler
row_store    the character-level model's interface to a model
runner       forward passes over the token trees of many sequences
pool         keys and values of all sequences
attention    which of them each row sees, and what is done with the scores
choice       the next token, on a GPU
scoring      what a choice must know of rows of logits
kernels      attention and scoring in the Triton language
checks       what a model must pass before it is used
memory       failed allocations as OverloadedError
transfer     copies to the device
"""
