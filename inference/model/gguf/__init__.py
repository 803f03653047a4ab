"""A runner on llama.cpp, for GGUF files, on every device that the installed llama-cpp-python was built for.

llama            the C interface: one model, one context, forward passes
kv_cache         what the context keeps: sequences, and tokens beside them
recurrent_cache  the same for models with a recurrent state: sequences, and checkpoints to cut them back to
model            a folder with model.gguf to a model, or why it is refused; token trees in, next-token logits out
"""
