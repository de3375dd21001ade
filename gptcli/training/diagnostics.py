"""What happens inside a model: gradient norms by layer and group, the residual stream's scale by depth."""

import contextlib

import torch
from torch.nn import functional as F

from gptcli.data.windows import evenly_spaced_starts, gather

# On a CPU a measurement takes as long as 3 (plain) to 8 (compiled) steps of stage 4_10, or 0.04 of 5_11.
BATCH_TOKENS = 1024
_PLACES = {
    "token_embedding": ("embeddings", "token"),
    "position_embedding": ("embeddings", "position"),
    "final_norm": ("output", "norm"),
    "lm_head": ("output", "lm_head"),
}


def diagnostic_batch(tokens, block_size):
    """Returns inputs and targets (windows, time) of about 1,024 symbols spread evenly over a split.

    They depend on the split and block_size alone, so that runs can be compared and no random number is drawn.
    """
    return gather(tokens, evenly_spaced_starts(len(tokens), block_size, BATCH_TOKENS), block_size)


def diagnose(model, x, y):
    """Returns {"gradient_norm": {layer: {group: norm}}, "residual_rms": {place: root mean square}}.

    The model is to be in evaluation mode: the loss is then free of dropout and draws no random numbers. Its
    parameters' .grad stay as they are.

    Args:
        x, y: inputs and targets (windows, time); the loss is their mean cross entropy.
    """
    squares = {}

    def take(place, tensor):
        if "/" not in place:
            squares[place] = tensor.detach().double().square().mean()

    with torch.enable_grad(), observed(model, take):
        loss = F.cross_entropy(model(x).flatten(0, 1), y.flatten())
        names, parameters = zip(*model.named_parameters(), strict=True)
        gradients = torch.autograd.grad(loss, parameters)
    places = list(squares)
    scales = torch.stack(list(squares.values())).sqrt().tolist()
    return {
        "gradient_norm": gradient_norms(dict(zip(names, gradients, strict=True))),
        "residual_rms": dict(zip(places, scales, strict=True)),
    }


def gradient_norms(gradients):
    """Returns {layer: {group: Euclidean norm}} of gradients by parameter name.

    Layers are embeddings, block_1, block_2, ... and output. A block's groups are query, key, value,
    projection, expand, contract, extra (both extra projections) and norm (both normalizations), as far as it
    has them.
    """
    squares = {}
    for name, gradient in gradients.items():
        for layer, group, part in _parts(name, gradient):
            square = part.double().square().sum()
            groups = squares.setdefault(layer, {})
            groups[group] = groups[group] + square if group in groups else square
    # One transfer for all of them: on an accelerator each .item() would wait for the device.
    flat = [square for groups in squares.values() for square in groups.values()]
    norms = iter(torch.stack(flat).sqrt().tolist())
    return {layer: {group: next(norms) for group in groups} for layer, groups in squares.items()}


def _parts(name, gradient):
    """Yields (layer, group, tensor); the fused queries, keys and values are told apart."""
    head, *rest = name.split(".")
    if head != "blocks":
        yield *_PLACES[head], gradient
        return
    layer, module = f"block_{int(rest[0]) + 1}", rest[1]
    if module.endswith("_norm"):
        yield layer, "norm", gradient
    elif module.endswith("_extra"):
        yield layer, "extra", gradient
    elif rest[2] == "qkv":
        yield from zip([layer] * 3, ("query", "key", "value"), gradient.chunk(3), strict=True)
    else:
        yield layer, rest[2], gradient


@contextlib.contextmanager
def observed(model, take):
    """While open, every forward pass of a model calls take(place, tensor (batch, time, embedding)).

    Places are "embeddings" and "block_1", "block_2", ... for the residual stream after these, and
    "block_1/attention", "block_1/feed_forward", ... for what a sub-layer puts out before it is added.
    """
    first = model.blocks[0] if len(model.blocks) else model.final_norm
    handles = [first.register_forward_pre_hook(lambda _, inputs: take("embeddings", inputs[0]))]
    for number, block in enumerate(model.blocks, start=1):
        for name in block.sublayer_names():
            handles.append(_watch(getattr(block, f"{name}_extra"), f"block_{number}/{name}", take))
        handles.append(_watch(block, f"block_{number}", take))
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()


def _watch(module, place, take):
    return module.register_forward_hook(lambda _module, _inputs, output: take(place, output))
