"""The engine against torch.optim on the plain module: same updates, guarded steps, exact states."""

import sys
from pathlib import Path

import pytest
import torch

from gptcli.training.engine import build_engine

sys.path.insert(0, str(Path(__file__).parent))
from engine_models import adam, batches, mean_loss, small_model

both = pytest.mark.parametrize("compile", [False, True])


def engine_for(*models, settings=None, **more):
    return build_engine(list(models), optimizers=[settings or adam()] * len(models), **more)


@pytest.mark.parametrize("name", ["adam", "adamw"])
@pytest.mark.parametrize("grad_clip", [0.0, 0.05])
def test_eager_steps_are_those_of_torch_optim(name, grad_clip):
    engine = engine_for(small_model(), settings=adam(name, (0.8, 0.95), 0.1), grad_clip=grad_clip)
    plain = small_model()
    optimizer_class = {"adam": torch.optim.Adam, "adamw": torch.optim.AdamW}[name]
    optimizer = optimizer_class(plain.parameters(), betas=(0.8, 0.95), weight_decay=0.1)
    for step, (x, y) in enumerate(zip(*batches(10), strict=True)):
        rate = 1e-3 * (1 + step)
        losses, norms = engine.step(x, y, [rate])
        optimizer.param_groups[0]["lr"] = rate
        optimizer.zero_grad()
        loss = mean_loss(plain, x[0], y[0])
        loss.backward()
        norm = torch.nn.utils.clip_grad_norm_(plain.parameters(), grad_clip or float("inf"))
        optimizer.step()
        assert losses.item() == pytest.approx(loss.item(), abs=1e-6)
        assert norms.item() == pytest.approx(norm.item(), rel=1e-5)
    for key, tensor in plain.state_dict().items():
        torch.testing.assert_close(engine.model_state(0)[key], tensor, atol=1e-5, rtol=0)


def test_pieces_have_the_gradient_of_the_whole_batch(monkeypatch):
    x, y = batches(1, windows=7)
    whole, pieces = engine_for(small_model()), engine_for(small_model())
    whole.step(x[0], y[0], [1e-3])
    monkeypatch.setattr("gptcli.training.eager_gradient._PIECE_WITH_GRADIENT", 3 * 8 * 16)
    pieces.step(x[0], y[0], [1e-3])
    torch.testing.assert_close(pieces.parameters.gradients, whole.parameters.gradients, atol=1e-7, rtol=1e-5)


@both
def test_states_continue_bit_for_bit(compile):
    x, y = batches(12)
    seeds, dropout = [5], {"dropout": 0.3, "dropout_placement": "everywhere"}
    engine = engine_for(small_model(**dropout), compile=compile, seeds=seeds)
    for step in range(6):
        engine.step(x[step], y[step], [1e-3])
    resumed = engine_for(small_model(seed=9, **dropout), compile=compile, seeds=seeds)
    resumed.load_model_state(0, engine.model_state(0))
    resumed.load_optimizer_state(0, engine.optimizer_state(0))
    for step in range(6, 12):
        results = [each.step(x[step], y[step], [1e-3]) for each in (engine, resumed)]
        assert torch.equal(*[torch.stack(result) for result in results])
    assert torch.equal(engine.parameters.values, resumed.parameters.values)


@both
def test_states_are_copies_under_canonical_names(compile):
    engine, plain = engine_for(small_model(), compile=compile), small_model()
    state, moments = engine.model_state(0), engine.optimizer_state(0)
    assert list(state) == [name for name, _ in plain.named_parameters()]
    assert set(moments) == {f"{key}.{name}" for key in ("exp_avg", "exp_avg_sq") for name in state} | {
        "step",
        "draws",
    }
    engine.step(*(part[0] for part in batches(1)), [1e-3])
    for name, parameter in plain.named_parameters():
        assert torch.equal(state[name], parameter)
        assert not moments[f"exp_avg.{name}"].any()


@both
@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
def test_a_step_that_is_not_finite_changes_nothing(compile, bad):
    engine = engine_for(small_model(), small_model(seed=1), compile=compile)
    x, y = batches(2, members=2)
    engine.step(x[0], y[0], [1e-3] * 2)
    with torch.no_grad():
        engine.models[1].blocks[0].feed_forward.expand.bias[3] = bad
    before = [engine.model_state(1), engine.optimizer_state(1)]
    good = engine.model_state(0)
    losses, norms = engine.step(x[1], y[1], [1e-3] * 2)
    assert torch.isfinite(losses[0] + norms[0])
    assert not torch.isfinite(losses[1] + norms[1])
    after = [engine.model_state(1), engine.optimizer_state(1)]
    for old, new in zip(before, after, strict=True):
        assert all(torch.equal(old[key].nan_to_num(), new[key].nan_to_num()) for key in old if key != "draws")
    assert not torch.equal(good["lm_head.weight"], engine.model_state(0)["lm_head.weight"])


@both
def test_modules_see_the_current_weights(compile):
    engine = engine_for(small_model(), compile=compile)
    for x, y in zip(*batches(3), strict=True):
        engine.step(x, y, [1e-2])
    x, y = (part[0, 0] for part in batches(1, seed=3))
    module = engine.model(0)
    assert not module.training
    expected = mean_loss(module, x, y).item()
    assert engine.evaluate(x, y).tolist() == pytest.approx([expected], abs=1e-6)
    assert engine.window_losses(0, x, y).mean().item() == pytest.approx(expected, abs=1e-6)


@both
@pytest.mark.parametrize("dropout", [0.0, 0.2])
def test_members_learn_as_they_do_alone(compile, dropout):
    members, steps = 3, 300
    x, y = batches(steps, members=members)
    rates = [1e-3, 2e-3, 5e-4]
    make = [
        lambda seed=seed: small_model(seed=seed, num_layers=1, dropout=dropout) for seed in range(members)
    ]
    together = engine_for(*[model() for model in make], compile=compile, seeds=list(range(members)))
    alone = [engine_for(model(), compile=compile, seeds=[seed]) for seed, model in enumerate(make)]
    for step in range(steps):
        losses, _ = together.step(x[step], y[step], rates)
        for member, engine in enumerate(alone):
            own, _ = engine.step(x[step, member], y[step, member], [rates[member]])
            assert losses[member].item() == pytest.approx(own.item(), abs=1e-4)


def test_missing_or_misshapen_tensors_are_refused():
    engine = engine_for(small_model())
    state = engine.model_state(0)
    with pytest.raises(ValueError, match=r"lm_head\.bias is \(5,\)"):
        engine.load_model_state(0, state | {"lm_head.bias": torch.zeros(5)})
    with pytest.raises(KeyError, match=r"lm_head\.bias"):
        engine.load_model_state(0, {name: tensor for name, tensor in state.items() if name != "lm_head.bias"})


def test_bf16_stays_near_fp32():
    x, y = batches(40)
    engines = [engine_for(small_model(), precision=precision) for precision in ("fp32", "bf16")]
    losses = [
        [engine.step(*batch, [1e-3])[0].item() for batch in zip(x, y, strict=True)] for engine in engines
    ]
    assert losses[0] != losses[1]
    assert losses[1] == pytest.approx(losses[0], abs=0.02)
