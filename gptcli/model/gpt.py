"""The whole model: embeddings, blocks, LM head. With everything switched off it is a bigram table."""

from torch import nn

from gptcli.model.block import Block
from gptcli.model.norm import build_norm
from gptcli.model.position import build_position


class GPT(nn.Module):
    """A decoder-only Transformer over a vocabulary of symbols.

    Args:
        config: a ModelConfig.
        vocabulary_size: number of symbols.
        dropout_by_head: see CausalSelfAttention.
    """

    def __init__(self, config, vocabulary_size, dropout_by_head=False):
        super().__init__()
        self.config = config
        self.vocabulary_size = vocabulary_size
        width = config.embedding_dim if config.lm_head else vocabulary_size
        self.token_embedding = nn.Embedding(vocabulary_size, width)
        self.position_embedding = build_position(config.position, config.block_size, width)
        self.blocks = nn.ModuleList(Block(config, dropout_by_head) for _ in range(config.num_layers))
        self.final_norm = build_norm("layer_norm" if config.final_norm else "none", width)
        self.lm_head = nn.Linear(width, vocabulary_size) if config.lm_head else nn.Identity()

    def forward(self, tokens, caches=None):
        """Returns the logits (batch, time, vocabulary) of the symbol that follows each of tokens (batch, time).

        Args:
            caches: one LayerCache a block; tokens then continue the text that the caches hold.
        """
        offset = caches[0].length if caches else 0
        x = self.embed(tokens, offset)
        for index, block in enumerate(self.blocks):
            x = block(x, caches[index]) if caches else block(x)
        return self.lm_head(self.final_norm(x))

    def embed(self, tokens, offset=0):
        """Returns token plus position embedding (batch, time, embedding); offset is the first token's position."""
        x = self.token_embedding(tokens)
        if self.position_embedding is None:
            return x
        return x + self.position_embedding(tokens.shape[1], offset)

    def parameter_count(self):
        """Returns the number of trained values."""
        return sum(parameter.numel() for parameter in self.parameters())
