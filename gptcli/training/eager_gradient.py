"""Losses and gradients by autograd, for any model on any device, in pieces that bound the memory."""

import torch
from torch.nn import functional as F

# Tokens times width of a piece on a CPU. Pieces that fit the cache are faster than whole batches, and their
# activations are gone before the next piece begins.
_PIECE_WITH_GRADIENT = 2**19
_PIECE_WITHOUT = 2**17


class EagerGradient:
    """Computes the mean cross entropy of each member and its gradient, one member after the other.

    Args:
        models: list of GPT whose parameters' gradients are views of parameters.gradients.
        parameters: FlatParameters.
        precision: fp32, or bf16 for autocast.
        compile: run forward and backward pass through torch.compile.
        seeds: one integer a member, to draw dropout masks from seed and number of the step; None draws them
            from torch's own generator as it stands.
    """

    def __init__(self, models, parameters, *, precision, compile, seeds):
        self.models, self.parameters = models, parameters
        self.device = parameters.values.device
        self.autocast = precision == "bf16"
        self.seeds = seeds
        self._losses = [_TokenLosses(model) for model in models]
        if compile:
            self._losses = [torch.compile(losses, dynamic=False) for losses in self._losses]

    def __call__(self, x, y, draws):
        """Writes the gradients of the mean losses into parameters.gradients; returns the losses (members,).

        Args:
            x, y: (members, batch, time) int64.
            draws: number of each member's step, list of int.
        """
        self.parameters.gradients.zero_()
        members = range(len(self.models))
        return torch.stack([self._member(one, x[one], y[one], draws[one]) for one in members])

    def _member(self, member, x, y, draw):
        model = self.models[member]
        if self.seeds is not None and model.config.dropout:
            torch.manual_seed((self.seeds[member] * 0x9E3779B97F4A7C15 + draw) % 2**63)
        model.train()
        total = torch.zeros((), device=self.device)
        with torch.enable_grad():
            for piece, targets in self._training_pieces(model, x, y):
                loss = self._token_losses(member, piece, targets).sum() / y.numel()
                loss.backward()
                total += loss.detach()
        model.eval()
        return total

    def _training_pieces(self, model, x, y):
        if self.seeds is None and model.config.dropout:
            return [(x, y)]  # masks in the order of torch's generator are those of whole batches
        return self._pieces(x, y, _PIECE_WITH_GRADIENT)

    @torch.no_grad()
    def token_losses(self, x, y, member=None):
        """Returns the losses without dropout, (members, windows, time), or those of one member, (1, ...)."""
        members = range(len(x)) if member is None else [member]
        return torch.stack([self._windows(one, *pair) for one, *pair in zip(members, x, y, strict=True)])

    def _windows(self, member, x, y):
        self.models[member].eval()
        pieces = self._pieces(x, y, _PIECE_WITHOUT)
        return torch.cat([self._token_losses(member, piece, targets) for piece, targets in pieces])

    def _token_losses(self, member, x, y):
        with torch.autocast(self.device.type, torch.bfloat16, enabled=self.autocast):
            return self._losses[member](x, y)

    def _pieces(self, x, y, limit):
        """Cuts windows into pieces, of one size where their number allows: one compiled graph then serves."""
        most = len(x)
        if self.device.type == "cpu":
            width = self.models[0].token_embedding.weight.shape[1]
            most = max(1, limit // (x.shape[1] * width))
        most = max(1, min(most, len(x)))
        size = next((size for size in range(most, most // 2, -1) if len(x) % size == 0), most)
        return zip(x.split(size), y.split(size), strict=True)


class _TokenLosses(torch.nn.Module):
    """Cross entropy of each token in nats, (windows, time)."""

    def __init__(self, model):
        super().__init__()
        self.model = model

    def forward(self, x, y):
        logits = self.model(x)
        return F.cross_entropy(logits.flatten(0, 1).float(), y.flatten(), reduction="none").view(y.shape)
