"""The keys and values of all sequences of a model.

planes       the memory, whose shapes may differ from layer to layer
token_pool   slots, which sequences share
kv_cache     the slots of one sequence
segment      the rows of one sequence in a forward pass, their slots, and what each of them sees
"""
