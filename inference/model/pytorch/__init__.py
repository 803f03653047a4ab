"""A runner on torch, with the models of transformers: for other families than those of `onnx`, and for GPUs.

loader              a model folder for torch; refuses models that would give wrong results
model               the engine's interface to a model, with the runner and a sampler
row_store           the character-level model's interface to a model
runner              forward passes over the token trees of many sequences
attention           the attention function that transformers calls in each layer
reach               how far back the tokens of a layer see: windows and chunks
score_rule          what a layer does with its scores
segment             the rows of one sequence in a forward pass, and what each of them sees
segment_attention   the attention of a pass, one segment after the other: on every device
pooled_attention    the attention of a pass, all segments together by a kernel: on GPUs
kernels             in the Triton language
token_pool          one pool of keys and values for all sequences of a model
planes              the memory of keys and values, whose shapes may differ from layer to layer
kv_cache            the keys and values of one sequence, in slots of the pool
sampler             the choice of tokens, on a GPU
inquiry             what a choice asks about rows of logits
scorer_loader       what answers it on a device: kernels, checked when a model is loaded, or torch's own operations
scoring             how it is answered: the questions in one array, masses, best tokens, draws
sorted_head         choices that need sorted tokens
draw_source         the random source of a candidate
memory              failed allocations as OverloadedError
transfer            copies to the device
checks              what a model must pass before it is used
"""
