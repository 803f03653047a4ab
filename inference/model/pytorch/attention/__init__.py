"""Attention of the rows of a pass, each to the tokens before it in its own sequence.

transformers_hook   the function that transformers calls in each layer
reach               how far back the tokens of a layer see: windows and chunks
score_rule          what a layer does with its scores
segment_attention   one segment after the other: on every device
pooled_attention    all segments together by a kernel: on GPUs
"""
