"""What each part of a model is worth: the loss when it alone is silenced, against the intact loss."""

import contextlib
import math
from dataclasses import dataclass

import torch
from torch.nn import functional as F

from gptcli.analysis.residual_stream import in_pieces, stream_states


@dataclass(frozen=True)
class Part:
    """A head, a sub-layer (attention, feed_forward) or a block, to be silenced; numbers count from 1."""

    kind: str
    block: int
    head: int | None = None


def parts_of(model):
    """Returns the parts of a model: of each block its heads, its sub-layers and the whole."""
    parts = []
    for number, block in enumerate(model.blocks, start=1):
        if block.attention is not None:
            parts += [Part("head", number, head) for head in range(1, block.attention.num_heads + 1)]
        parts += [Part(name, number) for name in block.sublayer_names()]
        if block.sublayer_names():
            parts.append(Part("block", number))
    return parts


@contextlib.contextmanager
def silenced(model, part):
    """While open, one part of a model contributes nothing.

    A head's slice of the mixed heads is zero before the projection (whose bias stays); a sub-layer's output,
    its extra projection included, is zero; of a block both are. With residual connections the stream then
    passes by; without them a silenced sub-layer puts out zero.
    """
    block = model.blocks[part.block - 1]
    if part.kind == "head":
        handles = [_without_head(block.attention, part.head - 1)]
    else:
        names = block.sublayer_names() if part.kind == "block" else [part.kind]
        extras = [getattr(block, f"{name}_extra") for name in names]
        handles = [
            extra.register_forward_hook(lambda _m, _i, output: torch.zeros_like(output)) for extra in extras
        ]
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()


def _without_head(attention, head):
    features = slice(head * attention.head_size, (head + 1) * attention.head_size)

    def cleared(mixed):
        mixed = mixed.clone()
        mixed[..., features] = 0.0
        return mixed

    if attention.projection is None:
        return attention.register_forward_hook(lambda _module, _inputs, output: cleared(output))
    return attention.projection.register_forward_pre_hook(lambda _module, inputs: (cleared(inputs[0]),))


@torch.no_grad()
def ablate(model, x, y):
    """Returns one dict for each part of a model, measured on windows x and targets y (windows, time).

    Keys: part, block, head, loss (nats), difference (to the intact loss; above 0 the part helps) and
    standard_error of the difference, paired by window: each window's mean is one observation. None with a
    single window.
    """
    parts = parts_of(model)
    intact, silent = [], {part: [] for part in parts}
    for inputs, targets in in_pieces(model, x, y):
        states = stream_states(model, inputs)
        intact.append(_window_means(model, states[-1], targets))
        for part in parts:
            with silenced(model, part):
                # Blocks before the part do what they always do.
                stream = states[part.block - 1]
                for block in model.blocks[part.block - 1 :]:
                    stream = block(stream)
                silent[part].append(_window_means(model, stream, targets))
    intact = torch.cat(intact)
    return [_worth(part, torch.cat(silent[part]), intact) for part in parts]


def _window_means(model, stream, targets):
    logits = model.lm_head(model.final_norm(stream))
    losses = F.cross_entropy(logits.flatten(0, 1), targets.flatten(), reduction="none").view(targets.shape)
    return losses.double().mean(1)


def _worth(part, losses, intact):
    differences = losses - intact
    error = float(differences.std() / math.sqrt(len(differences))) if len(differences) > 1 else None
    return {
        "part": part.kind,
        "block": part.block,
        "head": part.head,
        "loss": float(losses.mean()),
        "difference": float(differences.mean()),
        "standard_error": error,
    }
