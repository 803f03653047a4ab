"""A runner on onnxruntime for the CPU, without torch: for decoders whose layers are those of Llama or much like them.

decoder_config   the families, and a folder's configuration, or the reason why it is not served here
rotary           rotary positions and their scalings
weights          the folder's tensors
graph            the ONNX graph, built from both
session          onnxruntime itself, with its telemetry switched off
graph_store      built graphs, kept in a cache folder
conversion       a folder to a model
model            token trees in, next-token logits out; choices
"""
