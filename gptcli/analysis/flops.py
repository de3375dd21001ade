"""Training cost worked out from a model's settings, in floating-point operations."""

from math import prod

from gptcli.model.parameters import parameter_shapes

_LOOKED_UP = ("token_embedding.weight", "position_embedding.weight")


def flops_per_token(config, vocabulary_size):
    """Returns the floating-point operations that training spends on one token.

    6 N + 12 L T C, with N the weights of matrix products (embedding tables are looked up, biases and norms
    are left out), L layers with attention, T the block size and C the width. A product costs 2 operations
    per weight forward and twice that backward, hence 6 N (Kaplan et al., 2020, section 2.1). Scores and
    weighted sums cost 2 T C each forward, counted over the whole context as in Hoffmann et al. (2022,
    appendix F), so 12 T C with backward; the causal half is not subtracted, and softmax is left out. A
    bigram table has no product: 0.
    """
    shapes = parameter_shapes(config, vocabulary_size)
    weights = sum(prod(shape) for name, shape in shapes.items() if len(shape) == 2 and name not in _LOOKED_UP)
    width = config.embedding_dim if config.lm_head else vocabulary_size
    layers = config.num_layers if config.attention != "none" else 0
    return 6 * weights + 12 * layers * config.block_size * width
