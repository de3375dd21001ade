"""The compiled kernels against autograd and finite differences, for every component they know."""

import itertools
import math
import sys
from pathlib import Path

import pytest
import torch

from gptcli.training.engine import build_engine, why_not_natively
from gptcli.training.native import library
from gptcli.training.native.gradient import NativeGradient
from gptcli.training.native.tape import why_no_tape

sys.path.insert(0, str(Path(__file__).parent))
from engine_models import VOCABULARY, adam, batches, flat_gradient, small_model

BIGRAM = {
    "embedding_dim": None, "lm_head": False, "num_layers": 0, "position": "none", "final_norm": False,
}  # fmt: skip
MODELS = [
    {},
    BIGRAM,
    BIGRAM | {"embedding_dim": 16, "lm_head": True},
    {"num_layers": 0, "final_norm": False},
    {"attention": "single_head", "num_heads": 1, "feed_forward": "none", "residual": False, "norm": "none"},
    {"attention": "none"},
    {"feed_forward": "none"},
    {"residual": False},
    {"extra_projection": True},
    {"norm": "none", "final_norm": False},
    {"norm_placement": "post"},
    {"position": "sinusoidal"},
    {"position": "none"},
    {"num_heads": 16},
    {"embedding_dim": 30, "num_heads": 3},
    {"embedding_dim": 64, "num_heads": 2},
    {"embedding_dim": 72, "num_heads": 1, "num_layers": 1},
]
# Weights, keys and values too large to be used as they lie, several blocks of queries, and sizes that fill no tile.
LARGE = {"embedding_dim": 148, "num_heads": 2, "num_layers": 1, "block_size": 150}
# Heads narrower than a panel, with so many keys that only their width keeps them from being packed.
NARROW = {"embedding_dim": 16, "num_heads": 2, "num_layers": 1, "block_size": 700}


def native_engine(*models, seeds=None):
    engine = build_engine(list(models), optimizers=[adam()] * len(models), compile=True, seeds=seeds)
    assert isinstance(engine.gradient, NativeGradient)
    return engine


@pytest.mark.parametrize("changes", MODELS, ids=str)
@pytest.mark.parametrize("time", [8, 5, 1])
def test_losses_and_gradients_are_those_of_autograd(changes, time):
    engine, plain = native_engine(small_model(**changes)), small_model(**changes)
    x, y = (part[0, 0] for part in batches(1, windows=21, time=time))
    losses = engine.gradient(x[None], y[None], [0])
    loss, gradient = flat_gradient(plain, x, y)
    assert losses.item() == pytest.approx(loss.item(), abs=2e-6)
    torch.testing.assert_close(engine.parameters.gradients[0], gradient, atol=2e-7, rtol=2e-5)
    by_token = engine.window_losses(0, x, y)
    assert by_token.shape == x.shape
    picked = plain(x).double().log_softmax(-1).gather(-1, y[..., None])[..., 0]
    torch.testing.assert_close(by_token.double(), -picked, atol=3e-6, rtol=0)


@pytest.mark.parametrize("windows", [1, 3, 40])
def test_nothing_of_an_earlier_batch_stays(windows):
    engine, plain = native_engine(small_model()), small_model()
    engine.gradient(*batches(1, windows=21)[:, 0], [0])
    x, y = (part[0, 0] for part in batches(1, windows=windows))
    engine.gradient(x[None], y[None], [0])
    torch.testing.assert_close(engine.parameters.gradients[0], flat_gradient(plain, x, y)[1], atol=2e-7, rtol=2e-5)


@pytest.mark.parametrize(
    ("changes", "time"), [(LARGE, 150), (LARGE, 64), (LARGE, 33), (LARGE, 1), (NARROW, 700)], ids=str
)
def test_large_products_give_the_gradients_of_autograd(changes, time):
    engine, plain = native_engine(small_model(**changes)), small_model(**changes)
    x, y = (part[0, 0] for part in batches(1, windows=7, time=time))
    losses = engine.gradient(x[None], y[None], [0])
    loss, gradient = flat_gradient(plain, x, y)
    assert losses.item() == pytest.approx(loss.item(), abs=2e-6)
    torch.testing.assert_close(engine.parameters.gradients[0], gradient, atol=3e-7, rtol=5e-5)


@pytest.mark.parametrize("changes", [{}, LARGE, {"embedding_dim": 72, "num_heads": 1}], ids=str)
def test_bf16_rounds_only_the_factors_of_products(changes):
    block_size = changes.get("block_size", 8)
    engine, plain = native_engine(small_model(**changes)), small_model(**changes)
    # Where the processor has no products in bf16, the kernels themselves fall back to fp32.
    compute = NativeGradient(library.load_library(), engine.models, engine.parameters, [0], 1, bf16=True)
    x, y = (part[0, 0] for part in batches(1, windows=7, time=block_size))
    losses = compute(x[None], y[None], [0])
    loss, gradient = flat_gradient(plain, x, y)
    # A bf16 has 8 significant bits; rounding errors of 2^-9 average out over a sum.
    assert losses.item() == pytest.approx(loss.item(), abs=2e-3)
    difference = (engine.parameters.gradients[0] - gradient).norm() / gradient.norm()
    assert difference < 2**-5


def test_dropped_attention_is_unbiased_and_drawn_anew_each_step():
    single_head = {
        "attention": "single_head", "num_heads": 1, "feed_forward": "none", "residual": False, "norm": "none",
        "position": "none", "final_norm": False, "num_layers": 1, "block_size": 130,
        "dropout": 0.25, "dropout_placement": "everywhere",
    }  # fmt: skip
    engine = native_engine(small_model(**single_head), seeds=[1])
    model, head = engine.models[0], engine.parameters.named(engine.parameters.gradients, 0)
    with torch.no_grad():  # all past positions weigh the same and every value is one
        model.token_embedding.weight.fill_(1.0)
        model.blocks[0].attention.qkv.weight[:32] = 0.0
        model.blocks[0].attention.qkv.weight[32:] = torch.eye(16)
        model.lm_head.weight.zero_()
        model.lm_head.bias.zero_()
    x = torch.zeros(1, 3, 130, dtype=torch.int64)
    means = []
    for draw in range(200):
        engine.gradient(x, x, [draw])
        # With a zero head each symbol has probability 1/13, so symbol 1's row is the mean output over 13.
        means.append(head["lm_head.weight"][1].mean().item() * VOCABULARY)
    means = torch.tensor(means, dtype=torch.float64)
    assert len(set(means.tolist())) > 190
    assert abs(means.mean() - 1.0) < 4 * means.std() / math.sqrt(len(means))


@pytest.mark.parametrize("changes", [{"dropout_placement": "sublayer"}, {"dropout_placement": "everywhere"},
                                     LARGE | {"dropout_placement": "everywhere"}], ids=str)  # fmt: skip
def test_gradients_under_dropout_are_finite_differences_of_the_loss(changes):
    model = small_model(dropout=0.4, **changes)
    engine = native_engine(model, seeds=[3])
    x, y = batches(1, windows=3, time=model.config.block_size)
    engine.gradient(x[0], y[0], [7])
    values, gradient = engine.parameters.values, engine.parameters.gradients[0].clone()
    start, generator = values.clone(), torch.Generator().manual_seed(0)
    slopes, expected = [], []
    for _ in range(12):
        direction = torch.randn(values.shape, generator=generator)
        direction *= torch.rand(values.shape, generator=generator) < 0.1
        sides = []
        for sign in (1, -1):
            values.copy_(start + sign * 3e-4 * direction)
            sides.append(engine.gradient(x[0], y[0], [7]).double().item())
        slopes.append((sides[0] - sides[1]) / 6e-4)
        expected.append((gradient @ direction[0]).item())
    # Single slopes are off where a hidden value crosses zero within the step.
    slopes, expected = torch.tensor(slopes), torch.tensor(expected)
    assert (slopes - expected).norm() < 0.02 * expected.norm()


def test_dropout_keeps_the_right_share_and_is_off_in_evaluation():
    rate = 0.3
    engine = native_engine(small_model(dropout=rate, num_layers=1), seeds=[1])
    with torch.no_grad():  # the attention branch is silenced: every hidden value is 1 before the dropout
        for name, parameter in engine.models[0].named_parameters():
            parameter.fill_(1.0 if name == "blocks.0.feed_forward.contract.bias" else 0.0)
        engine.models[0].final_norm.weight.fill_(1.0)
    # With a zero head the gradient of lm_head.weight is made of normalized outputs, which tell kept from
    # dropped: a row with k of 16 values kept has the values sqrt((16 - k) / k) and -sqrt(k / (16 - k)).
    x, y = torch.zeros(1, 1, 8, dtype=torch.int64), torch.zeros(1, 1, 8, dtype=torch.int64)
    kept, drawn, masks = 0, 0, []
    for draw in range(200):
        engine.gradient(x[:, :, :1], y[:, :, :1], [draw])
        row = engine.parameters.named(engine.parameters.gradients, 0)["lm_head.weight"][1]
        masks.append(tuple((row > 0).tolist()))
        kept, drawn = kept + int((row > 0).sum()), drawn + row.numel()
    deviation = math.sqrt(rate * (1 - rate) / drawn)
    assert abs(kept / drawn - (1 - rate)) < 4 * deviation
    assert len(set(masks)) > 150
    assert engine.evaluate(x[0], y[0]).item() == pytest.approx(math.log(VOCABULARY), abs=1e-6)


@pytest.mark.parametrize("members", [1, 3])
def test_any_number_of_threads_gives_the_same_bits(members):
    x, y = batches(1, members=members, windows=13)
    results = []
    try:
        for threads in (1, 2, 3, 4, 9):
            torch.set_num_threads(threads)
            models = [small_model(seed, dropout=0.2) for seed in range(members)]
            engine = native_engine(*models, seeds=list(range(members)))
            assert engine.gradient.threads == threads
            losses = engine.gradient(x[0], y[0], [0] * members)
            results.append(torch.cat([losses[:, None], engine.parameters.gradients], dim=1))
    finally:
        torch.set_num_threads(1)
    for other in results[1:]:
        assert torch.equal(other, results[0])


@pytest.mark.parametrize("symbol", [-1, VOCABULARY, 2**40])
def test_symbols_outside_the_vocabulary_are_refused(symbol):
    engine = native_engine(small_model())
    for side, place in itertools.product((0, 1), (0, -1)):
        pair = batches(1)[:, 0].clone()
        pair[side].view(-1)[place] = symbol
        with pytest.raises(IndexError, match="outside the vocabulary of 13"):
            engine.step(*pair, [1e-3])


def test_a_compiled_state_goes_on_eagerly():
    x, y = batches(20)
    engine = native_engine(small_model())
    eager = build_engine([small_model(seed=4)], optimizers=[adam()])
    for step in range(10):
        engine.step(x[step], y[step], [1e-3])
    eager.load_model_state(0, engine.model_state(0))
    eager.load_optimizer_state(0, engine.optimizer_state(0))
    for step in range(10, 20):
        pair = [each.step(x[step], y[step], [1e-3])[0].item() for each in (engine, eager)]
        assert pair[0] == pytest.approx(pair[1], abs=1e-5)


def test_what_has_no_kernel_is_named():
    config = small_model().config
    assert why_no_tape(config, VOCABULARY) is None
    assert "parameters" in why_no_tape(config, 10**7)
    why_no_bf16 = library.why_no_bf16()
    assert why_no_bf16 is None or "bf16" in why_no_bf16
    assert why_not_natively(config, VOCABULARY, "bf16", "cpu", True) == why_no_bf16
    dropping = small_model(dropout=0.1).config
    assert "random numbers" in why_not_natively(dropping, VOCABULARY, "fp32", "cpu", False)
    assert why_not_natively(dropping, VOCABULARY, "fp32", "cpu", True) is None


@pytest.fixture
def empty_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(library, "user_cache_directory", lambda: tmp_path)
    library.load_library.cache_clear()
    yield tmp_path
    library.load_library.cache_clear()


@pytest.mark.parametrize("variable", [("PATH", ""), ("CXX", "/nowhere/c++")])
def test_without_a_compiler_it_says_so(empty_cache, monkeypatch, variable):
    monkeypatch.delenv("CXX", raising=False)
    monkeypatch.setenv(*variable)
    with pytest.raises(library.NoLibrary, match=r"no C\+\+ compiler"):
        library.load_library()


def test_a_failing_compiler_is_named_and_leaves_nothing(empty_cache, monkeypatch):
    monkeypatch.setenv("CXX", "false")
    with pytest.raises(library.NoLibrary, match="false failed"):
        library.load_library()
    assert list((empty_cache / "kernels").iterdir()) == []


def test_a_damaged_library_is_made_anew(empty_cache):
    path = library.library_path()
    path.parent.mkdir(parents=True)
    path.write_bytes(b"cut short")
    library.load_library()
    assert path.stat().st_size > 10_000
