"""A language model on its device: forward passes, keys and values, and the choice of tokens. Without torch.

    language_model the engine's interface to a model
    loader         a model folder -> model and tokenizer; decides which runner serves it
    folder_file    what the folder itself says of its model
    numpy_sampler  masses and choices from logits, on the CPU; which branches a choice still needs

Three packages implement the interfaces: `onnx` on onnxruntime, `gguf` on llama.cpp, and `pytorch` on torch and
transformers.
"""
