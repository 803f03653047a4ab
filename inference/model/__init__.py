"""A language model on its device: forward passes, keys and values, and the choice of tokens.

`language_model` is the engine's interface to a model, without torch. The other modules implement it:

    loader         a model folder -> runner, tokenizer, vocabulary; refuses models that would give wrong results
    torch_model    the interface, implemented with the runner and the sampler
    runner         forward passes over the token trees of many sequences
    attention      the attention function of each layer: every sequence sees only its own tokens
    kv_cache       keys and values, of one sequence or of many token strings
    sampler        masks, masses and choices from logits
    layer_check    whether a model's layers can run this way
    memory         failed allocations as OverloadedError

To add a runner without torch, implement `language_model.LanguageModel` in a file next to `torch_model`; `loader`
chooses between them.
"""
