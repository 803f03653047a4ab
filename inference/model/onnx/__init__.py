"""A runner on onnxruntime for the CPU, without torch: for decoders of the kind of Llama, Mistral and Qwen2.

decoder_config   a folder's configuration, or the reason why it is not served here
rotary           tables of rotary positions
weights          the folder's tensors, checked against the configuration
graph            the ONNX graph, built from both
graph_store      built graphs, kept in a cache folder
reference        the same decoder in plain NumPy: what the runner must agree with when it is loaded
kv_cache         the keys and values of one sequence, in buffers that onnxruntime reads and writes in place
conversion       a folder to a model: converted, or mapped from the store, and checked
model            the decoder: token trees in, next-token logits out, and choices
"""
