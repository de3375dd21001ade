"""The Transformer block: communication (attention), then computation (feed-forward)."""

from torch import nn
from torch.nn import functional as F

from gptcli.model.attention import build_attention
from gptcli.model.feed_forward import build_feed_forward
from gptcli.model.norm import build_norm


class Block(nn.Module):
    """Attention and feed-forward as sub-layers, with what the settings wrap around each.

    A sub-layer f becomes, by norm_placement and residual:
        pre    x + f(norm(x))     (Radford et al., 2019, section 2.3)
        post   norm(x + f(x))     (Vaswani et al., 2017, section 3.1)
    An extra projection, then dropout (Vaswani et al., 2017, section 5.4), act on f's output before the addition.
    """

    def __init__(self, config, dropout_by_head=False):
        super().__init__()
        width = config.embedding_dim
        inner_dropout = config.dropout if config.dropout_placement == "everywhere" else 0.0
        self.residual = config.residual
        self.norm_placement = config.norm_placement
        self.dropout = config.dropout
        # The order of construction is the order in which the walkthrough draws its initial values.
        self.attention = build_attention(
            config.attention, width, config.num_heads, inner_dropout, dropout_by_head
        )
        self.feed_forward = build_feed_forward(config.feed_forward, width, inner_dropout)
        for name in self.sublayer_names():
            extra = nn.Linear(width, width) if config.extra_projection else nn.Identity()
            setattr(self, f"{name}_extra", extra)
            setattr(self, f"{name}_norm", build_norm(config.norm, width))

    def sublayer_names(self):
        """Returns the names of the sub-layers that this block has, in the order in which they act."""
        return [name for name in ("attention", "feed_forward") if getattr(self, name) is not None]

    def forward(self, x, cache=None):
        """Maps (batch, time, embedding) to the same shape; cache goes to the attention."""
        if self.attention is not None:
            x = self._wrapped("attention", x, cache)
        if self.feed_forward is not None:
            x = self._wrapped("feed_forward", x)
        return x

    def keep(self, x, cache):
        """Puts what later positions need of x (batch, time, embedding) into an empty cache."""
        self.attention.keep(self.attention_norm(x) if self.norm_placement == "pre" else x, cache)

    def _wrapped(self, name, x, *arguments):
        sublayer, extra = getattr(self, name), getattr(self, f"{name}_extra")
        norm = getattr(self, f"{name}_norm")
        inside = norm(x) if self.norm_placement == "pre" else x
        out = F.dropout(extra(sublayer(inside, *arguments)), self.dropout, self.training)
        out = x + out if self.residual else out
        return norm(out) if self.norm_placement == "post" else out
