"""The shapes of a model's parameters worked out from its settings, without building it and without torch."""

from math import prod


def parameter_shapes(config, vocabulary_size):
    """Returns name -> shape of every parameter of GPT(config, vocabulary_size), in the order of the model."""
    width = config.embedding_dim if config.lm_head else vocabulary_size
    shapes = {"token_embedding.weight": (vocabulary_size, width)}
    if config.position == "learned":
        shapes["position_embedding.weight"] = (config.block_size, width)
    for index in range(config.num_layers):
        for name, shape in _block_shapes(config, width).items():
            shapes[f"blocks.{index}.{name}"] = shape
    if config.final_norm:
        shapes |= _norm("final_norm", width)
    if config.lm_head:
        shapes |= _linear("lm_head", width, vocabulary_size)
    return shapes


def parameter_count(config, vocabulary_size):
    """Returns the number of trained values."""
    return sum(prod(shape) for shape in parameter_shapes(config, vocabulary_size).values())


def _block_shapes(config, width):
    shapes = {}
    if config.attention != "none":
        shapes["attention.qkv.weight"] = (3 * width, width)
        if config.attention == "multi_head":
            shapes |= _linear("attention.projection", width, width)
    if config.feed_forward != "none":
        shapes |= _linear("feed_forward.expand", width, 4 * width)
        shapes |= _linear("feed_forward.contract", 4 * width, width)
    for name in ("attention", "feed_forward"):
        if getattr(config, name) == "none":
            continue
        if config.extra_projection:
            shapes |= _linear(f"{name}_extra", width, width)
        if config.norm != "none":
            shapes |= _norm(f"{name}_norm", width)
    return shapes


def _linear(name, width_in, width_out):
    return {f"{name}.weight": (width_out, width_in), f"{name}.bias": (width_out,)}


def _norm(name, width):
    return {f"{name}.weight": (width,), f"{name}.bias": (width,)}
