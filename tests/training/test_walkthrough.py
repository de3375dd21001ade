"""recipe=walkthrough gives what the step files print, and with dropout what a naive model gives."""

import json
import random
from pathlib import Path

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from gptcli.cli import main
from gptcli.runs import RunReference
from gptcli.training import eager_gradient
from gptcli.training.loading import load_model

REFERENCE = json.loads((Path(__file__).parents[1] / "reference" / "walkthrough_seed42.json").read_text())


def train(folder, *overrides):
    """Trains as a user types it and returns the records of metrics.jsonl."""
    settings = ["recipe=walkthrough", "trainer.compile=false", "trainer.threads=1", "trainer.sample_every=0"]
    assert main(["train", f"hydra.run.dir={folder}", *settings, "trainer.device=cpu", *overrides]) == 0
    return [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]


@pytest.mark.parametrize("stage", REFERENCE["stages"])
def test_recorded_losses_of_1001_steps(stage, corpus_path, tmp_path, monkeypatch):
    monkeypatch.setenv("GPTCLI_DATA_DIR", str(corpus_path.parent))
    monkeypatch.chdir(tmp_path)
    folder = tmp_path / "run"
    records = train(folder, f"stage={stage}", "data=tiny_shakespeare", "trainer.steps=1001")
    losses = [(one["step"], one["train_loss"], one["val_loss"]) for one in records if "val_loss" in one]
    recorded = REFERENCE["stages"][stage]["losses"]
    assert [step for step, _, _ in losses] == [step for step, _, _ in recorded] == list(range(0, 1001, 100))
    for (_, *ours), (_, *theirs) in zip(losses, recorded, strict=True):
        assert ours == pytest.approx(theirs, abs=2e-4)

    loaded = load_model(RunReference(folder, None))
    tokens = torch.from_numpy(loaded.tokenizer.encode(REFERENCE["probe_text"]))[None]
    with torch.no_grad():
        last = loaded.model(tokens)[0, -1]
    trained = torch.tensor(REFERENCE["stages"][stage]["trained_logits_last"])
    torch.testing.assert_close(last, trained, rtol=0, atol=0.02)


class NaiveHead(nn.Module):
    """One head by itself, its own dropout on its own attention weights."""

    def __init__(self, width, size, rate):
        super().__init__()
        self.query = nn.Linear(width, size, bias=False)
        self.key = nn.Linear(width, size, bias=False)
        self.value = nn.Linear(width, size, bias=False)
        self.dropout = nn.Dropout(rate)

    def forward(self, x):
        """Maps (batch, time, width) to (batch, time, size)."""
        time = x.shape[1]
        scores = self.query(x) @ self.key(x).transpose(1, 2) * self.query.out_features**-0.5
        future = torch.tensor([[key > query for key in range(time)] for query in range(time)])
        return self.dropout(scores.masked_fill(future, -torch.inf).softmax(-1)) @ self.value(x)


class NaiveBlock(nn.Module):
    """A pre-norm block of separate modules; inner: rate inside the sub-layers, outer: on their outputs."""

    def __init__(self, width, heads, inner, outer):
        super().__init__()
        self.heads = nn.ModuleList(NaiveHead(width, width // heads, inner) for _ in range(heads))
        self.projection = nn.Linear(width, width)
        self.after_projection = nn.Dropout(inner)
        self.expand = nn.Linear(width, 4 * width)
        self.contract = nn.Linear(4 * width, width)
        self.after_relu = nn.Dropout(inner)
        self.norm_1, self.norm_2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.outer = nn.Dropout(outer)

    def forward(self, x):
        """Maps (batch, time, width) to the same shape."""
        normed = self.norm_1(x)
        mixed = self.projection(torch.cat([head(normed) for head in self.heads], dim=-1))
        x = x + self.outer(self.after_projection(mixed))
        hidden = self.after_relu(self.expand(self.norm_2(x)).relu())
        return x + self.outer(self.contract(hidden))


class NaiveGPT(nn.Module):
    """The model of sections 5.4 (everywhere false) and 5.11 (true), one module for each thing."""

    def __init__(self, symbols, width, block_size, layers, heads, rate, everywhere):
        super().__init__()
        self.tokens = nn.Embedding(symbols, width)
        self.positions = nn.Embedding(block_size, width)
        inner = rate if everywhere else 0.0
        self.blocks = nn.Sequential(*[NaiveBlock(width, heads, inner, rate) for _ in range(layers)])
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, symbols)

    def forward(self, x):
        """Returns logits (batch, time, symbols)."""
        places = torch.arange(x.shape[1])
        return self.head(self.norm(self.blocks(self.tokens(x) + self.positions(places))))


def naive_losses(text, steps, batch_size, block_size, seed, rate, *, everywhere):
    """Trains in the plainest way; returns each step's loss, and (step, train, validation) of evaluations."""
    symbols = sorted(set(text))
    tokens = torch.tensor([symbols.index(character) for character in text])
    cut = int(0.9 * len(tokens))
    splits = tokens[:cut], tokens[cut:]
    random.seed(seed)
    torch.manual_seed(seed)
    model = NaiveGPT(len(symbols), 12, block_size, 2, 3, rate, everywhere)
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)

    def loss_on_a_batch(split):
        starts = [random.randint(0, len(split) - block_size - 1) for _ in range(batch_size)]
        x = torch.stack([split[start : start + block_size] for start in starts])
        y = torch.stack([split[start + 1 : start + block_size + 1] for start in starts])
        return F.cross_entropy(model(x).reshape(-1, len(symbols)), y.reshape(-1))

    training, evaluations = [], []
    for step in range(steps):
        model.train()
        loss = loss_on_a_batch(splits[0])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        training.append(loss.item())
        if step % 10 == 0:
            model.eval()
            with torch.no_grad():
                means = [sum(loss_on_a_batch(split).item() for _ in range(100)) / 100 for split in splits]
            evaluations.append((step, *means))
    return training, evaluations


@pytest.mark.parametrize("placement", ["sublayer", "everywhere"])
@pytest.mark.parametrize("piece", [None, 64])
def test_dropout_falls_where_and_as_in_a_naive_model(placement, piece, text_path, tmp_path, monkeypatch):
    """Masks come from one generator in the order of the modules, head by head, over whole batches.

    With piece the batches count as too large for one pass, as those of the final size do.
    """
    monkeypatch.chdir(tmp_path)
    if piece:
        monkeypatch.setattr(eager_gradient, "_PIECE_WITH_GRADIENT", piece)
    steps, batch_size, block_size, seed = 31, 4, 8, 7
    records = train(
        tmp_path / "run",
        "stage=5_4",
        "model.dropout=0.3",
        f"model.dropout_placement={placement}",
        "model.embedding_dim=12",
        "model.num_heads=3",
        "model.num_layers=2",
        f"model.block_size={block_size}",
        f"trainer.batch_size={batch_size}",
        f"trainer.steps={steps}",
        "trainer.eval_every=10",
        "trainer.log_every=1",
        "optimizer.learning_rate=3e-3",
        f"seed={seed}",
        "data=text_file",
        f"data.path={text_path}",
    )
    training, evaluations = naive_losses(
        text_path.read_text(), steps, batch_size, block_size, seed, 0.3, everywhere=placement == "everywhere"
    )
    assert [one["batch_loss"] for one in records] == pytest.approx(training, abs=1e-5)
    ours = [(one["step"], one["train_loss"], one["val_loss"]) for one in records if "val_loss" in one]
    assert ours == [
        (step, pytest.approx(a, abs=1e-5), pytest.approx(b, abs=1e-5)) for step, a, b in evaluations
    ]
