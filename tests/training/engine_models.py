"""Small models, batches and plain training steps that the engine's tests compare with."""

from types import SimpleNamespace

import torch
from torch.nn import functional as F

from gptcli.model.config import ModelConfig
from gptcli.model.gpt import GPT

VOCABULARY = 13
FULL = {
    "block_size": 8, "embedding_dim": 16, "lm_head": True, "num_layers": 2, "num_heads": 4,
    "attention": "multi_head", "feed_forward": "relu",
    "residual": True, "extra_projection": False, "norm": "layer_norm",
    "norm_placement": "pre", "final_norm": True, "position": "learned", "dropout": 0.0,
    "dropout_placement": "sublayer",
}  # fmt: skip


def small_model(seed=0, **changes):
    """Returns a GPT with two blocks of width 16, changed as asked."""
    torch.manual_seed(seed)
    return GPT(ModelConfig(**(FULL | changes)), VOCABULARY)


def adam(name="adam", betas=(0.9, 0.999), weight_decay=0.0):
    """Returns optimizer settings."""
    return SimpleNamespace(name=name, betas=betas, weight_decay=weight_decay)


def batches(count, members=1, windows=6, time=8, seed=1):
    """Returns inputs and targets, (count, members, windows, time) each."""
    generator = torch.Generator().manual_seed(seed)
    shape = (2, count, members, windows, time)
    return torch.randint(VOCABULARY, shape, generator=generator)


def mean_loss(model, x, y):
    """Returns the cross entropy of a module by the plain formula."""
    return F.cross_entropy(model(x).flatten(0, 1), y.flatten())


def flat_gradient(model, x, y):
    """Returns the loss and the gradient by autograd, (parameters,), of a module whose gradients are unset."""
    loss = mean_loss(model, x, y)
    gradients = torch.autograd.grad(loss, list(model.parameters()))
    return loss.detach(), torch.cat([gradient.reshape(-1) for gradient in gradients])
