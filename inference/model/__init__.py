"""A language model on its device: forward passes, keys and values, and the choice of tokens.

`language_model` is the engine's interface to a model, without torch. The other modules implement it:

    loader         a model folder -> runner, tokenizer, vocabulary; refuses models that would give wrong results
    torch_model    the interface, implemented with the runner and the sampler
    runner         forward passes over the token trees of many sequences
    attention      the attention function of each layer: every sequence sees only its own tokens
    reach          how far back the tokens of a layer see: windows and chunks
    segment        the rows of one sequence in a forward pass, and what each of them sees
    kv_cache       keys and values, of one sequence or of many token strings
    planes         the memory of keys and values, whose shapes may differ from layer to layer
    sampler        masks, masses and choices from logits
    memory         failed allocations as OverloadedError

Before a model is used, it must pass these checks, or it is refused with its family and the reason:

    config_check   what the configuration alone tells
    weights_check  weights that are missing, or that the model's code does not use
    forward_check  packed trial runs give the logits that transformers gives: `tolerances` says how exactly, `windows`
                   makes them reach beyond the windows
    position_check how long a sequence may be without an effect on its neighbours
    probe          records the shapes of keys and values in a trial run

To add a runner without torch, implement `language_model.LanguageModel` in a file next to `torch_model`; `loader`
chooses between them.
"""
