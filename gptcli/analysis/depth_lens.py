"""What a model would predict at each depth, and how well it predicts at each position of the context."""

import math

import torch
from torch.nn import functional as F

from gptcli.analysis.residual_stream import in_pieces, stream_states


@torch.no_grad()
def losses_by_depth(model, x, y):
    """Returns (by depth, by position) of the loss on windows x and targets y (windows, time), in nats.

    By depth: a list of {"after", "loss", "standard_error"}: the final norm and the LM head applied to the
    residual stream after the embeddings and after each block ("embeddings", "block_1", ...), the last of them
    being the model's own loss; a window's mean is one observation of the standard error, which is None for a
    single window. By position: {"loss", "standard_error"} at each place of the context, over windows.
    """
    by_depth, last = {}, []
    for inputs, targets in in_pieces(model, x, y):
        for depth, state in enumerate(stream_states(model, inputs)):
            logits = model.lm_head(model.final_norm(state))
            losses = F.cross_entropy(logits.flatten(0, 1), targets.flatten(), reduction="none")
            losses = losses.view(targets.shape).double()
            by_depth.setdefault(depth, []).append(losses.mean(1))
        last.append(losses)
    depths = [
        {"after": f"block_{depth}" if depth else "embeddings", **_mean(torch.cat(means))}
        for depth, means in by_depth.items()
    ]
    return depths, [_mean(position) for position in torch.cat(last).unbind(1)]


def _mean(values):
    error = float(values.std() / math.sqrt(len(values))) if len(values) > 1 else None
    return {"loss": float(values.mean()), "standard_error": error}
