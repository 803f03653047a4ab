"""A runner on torch, with the models of transformers: for other families than those of `onnx`, and for GPUs.

loader             a model folder for torch; refuses models by their configuration and their weights
forward_check      refuses models that would give other logits here than in transformers, or bounds their sequences
runner             forward passes over the token trees of many sequences, and the engine's interface to them
pool               the keys and values of all sequences, and which of them each row of a pass sees
transformers_hook  the attention function that transformers calls in each layer
attention          the attention of a pass, on any device
attention_kernel   the same on a GPU, in the Triton language
sampler            the next token on a GPU
scoring            what a choice must know of rows of logits
choice_kernel      the answers on a GPU, in the Triton language
device             copies to a device, and failed allocations
"""
