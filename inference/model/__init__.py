"""A language model on its device: forward passes, keys and values, and the choice of tokens.

`language_model` is the seam to the engine and knows no torch. Behind it:

    loader         a model folder -> runner, tokenizer, vocabulary; refuses models that cannot be run rightly
    torch_model    the seam, implemented with the runner and the sampler below
    runner         forward passes over the token trees of many sequences
    attention      what transformers calls in each layer: every sequence sees its own tokens only
    kv_cache       keys and values, of one sequence or of many token strings
    sampler        masks, masses and choices from logits
    layer_check    whether a model's layers can run this way
    memory         failed allocations as OverloadedError

A second runner, without torch, is a second implementation of `language_model.LanguageModel` in a file beside
`torch_model`; `loader` chooses between them.
"""
