"""Kernels in the Triton language, for GPUs of CUDA and ROCm. Only these modules import the package `triton`.

tree_attention   the attention of all rows of a pass
choice           the questions of a choice, answered with one read of the logits
choice_scorer    launches them
"""
