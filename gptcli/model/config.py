"""The typed settings of a model: names and numbers only, and free of torch."""

from dataclasses import dataclass, field


def _one_of(*words):
    return field(metadata={"words": words})


def _at_least(minimum, maximum=None, below=None):
    return field(metadata={"minimum": minimum, "maximum": maximum, "below": below})


@dataclass(frozen=True)
class ModelConfig:
    """One flat description of every model on the ladder.

    embedding_dim is None exactly when lm_head is False: the rows of a (vocabulary, vocabulary) token table are then
    the logits, and the model has no hidden width. head_size is derived: embedding_dim / num_heads.
    """

    block_size: int = _at_least(1)
    embedding_dim: int | None = _at_least(1)
    lm_head: bool
    num_layers: int = _at_least(0)
    num_heads: int = _at_least(1)
    attention: str = _one_of("none", "single_head", "multi_head")
    feed_forward: str = _one_of("none", "relu")
    residual: bool
    extra_projection: bool
    norm: str = _one_of("none", "layer_norm")
    norm_placement: str = _one_of("pre", "post")
    final_norm: bool
    position: str = _one_of("none", "learned", "sinusoidal")
    dropout: float = _at_least(0.0, below=1.0)
    dropout_placement: str = _one_of("sublayer", "everywhere")

    @property
    def context_length(self):
        """How many symbols a prediction can depend on: all of the block with attention, the newest one without."""
        return self.block_size if self.num_layers and self.attention != "none" else 1
