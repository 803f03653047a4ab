"""A language model on its device: forward passes, keys and values, and the choice of tokens. Without torch.

    language_model the engine's interface to a model, and whether one computes the same in a tree as in a text
    loader         a model folder -> model and tokenizer; decides which runner serves it
    sampler        masses and choices from rows of logits, and the rows of those who have them on the host
    sizes          the precision, threads and context that suit a model of a size

Three packages implement the interfaces: `onnx` on onnxruntime, `gguf` on llama.cpp, and `pytorch` on torch and
transformers.
"""
