"""The typed settings of a model: names and numbers only, and free of torch."""

from dataclasses import dataclass


@dataclass(frozen=True)
class ModelConfig:
    """One flat description of every model on the ladder.

    embedding_dim is None exactly when lm_head is False: the rows of a (vocabulary, vocabulary) token table are then
    the logits, and the model has no hidden width. head_size is derived: embedding_dim / num_heads.
    """

    block_size: int
    embedding_dim: int | None
    lm_head: bool
    num_layers: int
    num_heads: int
    attention: str  # none, single_head, multi_head
    feed_forward: str  # none, relu
    residual: bool
    extra_projection: bool
    norm: str  # none, layer_norm
    norm_placement: str  # pre, post
    final_norm: bool
    position: str  # none, learned, sinusoidal
    dropout: float
    dropout_placement: str  # sublayer, everywhere
