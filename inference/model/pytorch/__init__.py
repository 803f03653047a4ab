"""A runner on torch, with the models of transformers: for other families than those of `onnx`, and for GPUs.

loader         a model folder for torch; refuses models that would give wrong results
model          the engine's interface to a model, with the runner and a sampler
row_store      the character-level model's interface to a model
runner         forward passes over the token trees of many sequences
attention      the attention function of each layer: every sequence sees only its own tokens
reach          how far back the tokens of a layer see: windows and chunks
segment        the rows of one sequence in a forward pass, and what each of them sees
kv_cache       keys and values, of one sequence or of many token strings
planes         the memory of keys and values, whose shapes may differ from layer to layer
sampler        masses and choices from logits, on a GPU
probe          records the shapes of keys and values in a trial run
memory         failed allocations as OverloadedError
checks         what a model must pass before it is used
"""
