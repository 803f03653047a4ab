"""A runner on torch, with the models of transformers: for other families than those of `onnx`, and for GPUs.

loader             a model folder for torch; refuses models by their configuration and their weights
forward_check      refuses models that would give other logits here than in transformers, or bounds their sequences
runner             forward passes over the token trees of many sequences, and the engine's interface to them
kv_cache           the keys and values of a sequence, and its part in a pass
transformers_hook  the attention function that transformers calls in each layer
attention          the attention of a pass, on any device
sampler            the next token on a GPU
scoring            what a choice must know of rows of logits
choice_kernel      the answers on a GPU, in the Triton language
device             failed allocations
"""
