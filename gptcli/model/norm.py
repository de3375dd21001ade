"""Normalization, chosen by name."""

from torch import nn


def build_norm(name, embedding_dim):
    """Returns the module called name; "none" is the identity.

    layer_norm: Ba, Kiros and Hinton (2016), each position's vector (..., embedding) normalized over its own features,
    then scaled and shifted by two learned vectors.
    """
    return {"none": nn.Identity, "layer_norm": lambda: nn.LayerNorm(embedding_dim)}[name]()
