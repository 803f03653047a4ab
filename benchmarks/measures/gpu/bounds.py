"""The least that a device must do for a completion: bytes to read, and operations. Plain arithmetic.

A step of few rows is bound by memory: it reads each weight once, and the keys and values of its context. Reading a long
context is bound by arithmetic: two operations for each weight and token, and attention.
"""

from benchmarks.corpora.random_models import Shape

NUM_BYTES = 2  # of a bfloat16
DENSE_BF16_FLOPS = 989e12  # of an H200 SXM, by its datasheet, without sparsity


def count_layer_weights(shape: Shape) -> int:
    """The weights of all layers, without the table of embeddings, the head and the last norm."""
    attention = shape.hidden * shape.head_dim * 2 * (shape.heads + shape.kv_heads)
    biases = shape.head_dim * (shape.heads + 2 * shape.kv_heads)  # of queries, keys and values
    feed_forward = 3 * shape.hidden * shape.intermediate
    norms = 2 * shape.hidden
    return shape.layers * (attention + biases + feed_forward + norms)


def count_step_weight_bytes(shape: Shape) -> int:
    """The bytes of the weights that a step reads. Of a table of embeddings that is not the head, it reads few rows."""
    return NUM_BYTES * (count_layer_weights(shape) + shape.hidden * shape.vocab_rows + shape.hidden)


def count_token_bytes(shape: Shape) -> int:
    """The bytes of one token's keys and values."""
    return NUM_BYTES * 2 * shape.layers * shape.kv_heads * shape.head_dim


def count_completion_bytes(shape: Shape, num_forwards: int, num_context: int) -> int:
    """What a warm completion reads in `num_forwards` passes, each over one token more than the one before."""
    num_read = num_forwards * num_context + num_forwards * (num_forwards - 1) // 2
    return num_forwards * count_step_weight_bytes(shape) + num_read * count_token_bytes(shape)


def count_prefill_flops(shape: Shape, num_tokens: int) -> int:
    """The operations to read a text: two for each weight of the layers and token, and causal attention.

    The head is left out, since only the last rows have logits.
    """
    num_pairs = num_tokens * (num_tokens + 1) // 2
    attention = 4 * shape.layers * shape.heads * shape.head_dim * num_pairs  # scores, and the sum of the values
    return 2 * count_layer_weights(shape) * num_tokens + attention
