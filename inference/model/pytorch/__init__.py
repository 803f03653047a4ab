"""A runner on torch, with the models of transformers: for other families than those of `onnx`, and for GPUs.

loader  a model folder for torch; refuses models by their configuration, their weights, and a trial run
model   forward passes over token trees, with transformers' own cache and masks; rows of logits on the device
"""
