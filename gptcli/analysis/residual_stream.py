"""The residual stream of a model by depth: its states, its scale, and the ReLU units that never answer it."""

import torch

from gptcli.training.diagnostics import observed

_PIECE_VALUES = 2**19  # symbols times width that one forward pass takes, to bound the memory


def in_pieces(model, *tensors):
    """Cuts tensors (windows, time) alike into pieces that one forward pass of the model may take."""
    width = model.token_embedding.weight.shape[1]
    size = max(1, _PIECE_VALUES // (tensors[0].shape[1] * width))
    return zip(*(tensor.split(size) for tensor in tensors), strict=True)


@torch.no_grad()
def stream_states(model, x):
    """Returns the stream after the embeddings and after each block, a list of (windows, time, embedding)."""
    states = []
    with observed(model, lambda place, tensor: None if "/" in place else states.append(tensor)):
        model(x)
    return states


@torch.no_grad()
def stream_scales(model, x):
    """Returns {place: root mean square over windows x (windows, time), positions and features}.

    Places are those of gptcli.training.diagnostics.observed: the stream after the embeddings and after each
    block, and each sub-layer's contribution to it.
    """
    squares, counts = {}, {}

    def take(place, tensor):
        squares[place] = squares.get(place, 0.0) + tensor.double().square().sum()
        counts[place] = counts.get(place, 0) + tensor.numel()

    with observed(model, take):
        for (piece,) in in_pieces(model, x):
            model(piece)
    return {place: float((square / counts[place]).sqrt()) for place, square in squares.items()}


@torch.no_grad()
def dead_units(model, x):
    """Returns {"block_1": share of its ReLU units that are zero everywhere in x (windows, time)}."""
    alive, handles = {}, []

    def watch(number, expand):
        def take(_module, _inputs, output):
            active = (output > 0).flatten(0, -2).any(0)
            alive[number] = alive[number] | active if number in alive else active

        handles.append(expand.register_forward_hook(take))

    for number, block in enumerate(model.blocks, start=1):
        if block.feed_forward is not None:
            watch(number, block.feed_forward.expand)
    try:
        for (piece,) in in_pieces(model, x):
            model(piece)
    finally:
        for handle in handles:
            handle.remove()
    return {f"block_{number}": 1.0 - float(units.double().mean()) for number, units in alive.items()}
