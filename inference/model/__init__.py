"""A language model on its device: forward passes, keys and values, and the choice of tokens.

`language_model` is the engine's interface to a model, without torch. The other modules implement it:

    loader         a model folder -> runner, tokenizer, vocabulary; decides which runner serves it
    folder_file    what the folder itself says of its model
    torch_loader   a model folder for torch; refuses models that would give wrong results
    torch_model    the interface, implemented with the runner and a sampler
    onnx_model     the same with the runner of the package `onnx`
    runner         forward passes over the token trees of many sequences
    attention      the attention function of each layer: every sequence sees only its own tokens
    reach          how far back the tokens of a layer see: windows and chunks
    segment        the rows of one sequence in a forward pass, and what each of them sees
    kv_cache       keys and values, of one sequence or of many token strings
    planes         the memory of keys and values, whose shapes may differ from layer to layer
    numpy_sampler  masses and choices from logits, on the CPU; torch_sampler on a GPU
    node_weights   what both share: path probabilities, and which branches a choice still needs
    memory         failed allocations as OverloadedError

Before a model is used, it must pass these checks, or it is refused with its family and the reason:

    config_check   what the configuration alone tells
    weights_check  weights that are missing, or that the model's code does not use
    forward_check  packed trial runs give the logits that transformers gives: `tolerances` says how exactly, `windows`
                   makes them reach beyond the windows
    position_check how long a sequence may be without an effect on its neighbours
    probe          records the shapes of keys and values in a trial run

The character-level model's interface is `row_store`, and `torch_row_store` implements it. The package `onnx` has a
runner without torch.
"""
