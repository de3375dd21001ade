"""Which threads and whether to compile: rules that depend on settings alone."""

from types import SimpleNamespace

import pytest
import torch

from gptcli.model.config import ModelConfig
from gptcli.training import compile_choice, engine, threads
from gptcli.training.native.library import NoLibrary

CONFIG = {
    "block_size": 8, "embedding_dim": 32, "lm_head": True, "num_layers": 3, "num_heads": 4,
    "attention": "multi_head", "feed_forward": "relu",
    "residual": True, "extra_projection": False, "norm": "layer_norm",
    "norm_placement": "pre", "final_norm": True, "position": "learned", "dropout": 0.0,
    "dropout_placement": "sublayer",
}  # fmt: skip
CPU = torch.device("cpu")


def config_with(compile="auto", steps=10_000, precision="fp32", recipe="default", workers="auto", **model):
    trainer = SimpleNamespace(compile=compile, steps=steps, precision=precision, batch_size=32, device="cpu")
    return SimpleNamespace(
        model=ModelConfig(**(CONFIG | model)), trainer=trainer, recipe=SimpleNamespace(name=recipe),
        sweep=SimpleNamespace(workers=workers),
    )  # fmt: skip


def choose(config, **more):
    return compile_choice.choose_compile(config, CPU, 65, **more)


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({}, True),
        ({"compile": False}, False),
        ({"compile": True, "steps": 1}, True),
        ({"steps": 10}, True),
        ({"recipe": "walkthrough"}, True),
        ({"recipe": "walkthrough", "dropout": 0.1}, False),
        ({"dropout": 0.1}, True),
        ({"embedding_dim": 384, "num_layers": 6, "dropout": 0.2, "block_size": 256}, True),
        ({"embedding_dim": 128}, True),
        ({"embedding_dim": 512}, False),
        ({"embedding_dim": 512, "block_size": 256}, True),
        ({"embedding_dim": 512, "compile": True}, True),
        ({"embedding_dim": 1536, "num_layers": 12}, False),
    ],
    ids=str,
)
def test_auto_compiles_where_it_pays(settings, expected):
    assert choose(config_with(**settings))[0] is expected


def test_many_parameters_for_few_tokens_are_left_to_torch_in_fp32_and_one_line_says_so(monkeypatch):
    compiled, reason = choose(config_with(embedding_dim=512))
    assert not compiled and "256 tokens" in reason and "parameters" in reason
    monkeypatch.setattr(engine, "why_no_bf16", lambda: None)
    assert choose(config_with(embedding_dim=512, precision="bf16"))[0]


def test_bf16_is_compiled_where_the_processor_has_its_products(monkeypatch):
    monkeypatch.setattr(engine, "why_no_bf16", lambda: None)
    assert choose(config_with(precision="bf16"))[0]
    monkeypatch.setattr(engine, "why_no_bf16", lambda: "no bf16")
    compiled, reason = choose(config_with(precision="bf16"))
    assert not compiled and "no bf16" in reason


def test_without_a_compiler_steps_are_not_compiled_and_one_line_says_so(monkeypatch):
    def refuse():
        raise NoLibrary("there is no C++ compiler")

    monkeypatch.setattr(compile_choice, "load_library", refuse)
    compiled, reason = choose(config_with())
    assert not compiled
    assert "no C++ compiler" in reason and "\n" not in reason


def test_torch_compile_needs_a_compiler_too(monkeypatch):
    monkeypatch.setattr(compile_choice, "find_compiler", lambda: None)
    compiled, reason = choose(config_with(compile=True, recipe="walkthrough", dropout=0.1))
    assert not compiled and "C++ compiler" in reason


@pytest.mark.parametrize(
    ("parameters", "tokens", "workers", "cores", "expected"),
    [
        (4_225, 256, 1, 8, 1),
        (42_369, 256, 1, 2, 2),
        (42_369, 256, 1, 8, 3),
        (10_788_929, 16_384, 1, 8, 8),
        (10_788_929, 16_384, 4, 8, 2),
        (10_788_929, 16_384, 16, 8, 1),
    ],
)
def test_threads_follow_the_work_and_the_share(monkeypatch, parameters, tokens, workers, cores, expected):
    monkeypatch.setattr(threads, "available_cores", lambda: cores)
    assert threads.choose_threads("auto", parameters, tokens, workers)[0] == expected


@pytest.mark.parametrize(
    ("parameters", "tokens", "cores", "expected"),
    [
        (42_369, 256, 2, 1),  # 3.0 ms a step on one thread, 2.3 to 3.5 on two
        (57_473, 256, 2, 2),  # 2.0 and 1.4
        (816_705, 256, 2, 2),  # 18.6 and 12.0
        (156_609, 256, 16, 4),
        (10_788_929, 16_384, 8, 8),
    ],
)
def test_threads_of_torch_need_more_work(monkeypatch, parameters, tokens, cores, expected):
    monkeypatch.setattr(threads, "available_cores", lambda: cores)
    assert threads.choose_threads("auto", parameters, tokens, kernels=False)[0] == expected


@pytest.mark.parametrize(
    ("parameters", "tokens", "expected"),
    [(42_369, 2048, 1), (10_788_929, 1, 1), (10_788_929, 256, 5), (10_788_929, 2048, 8)],
)
def test_passes_without_gradients_are_shared_where_each_thread_has_a_billion_operations(
    monkeypatch, parameters, tokens, expected
):
    monkeypatch.setattr(threads, "available_cores", lambda: 8)
    assert threads.threads_without_gradients(parameters, tokens) == expected


def test_a_number_of_threads_is_taken_as_it_is():
    assert threads.choose_threads(3, 10, 10, 4)[0] == 3


def test_jobs_share_cores_and_memory(monkeypatch):
    monkeypatch.setattr(threads, "available_cores", lambda: 4)
    monkeypatch.setattr(threads, "_available_bytes", lambda: 100e9)
    assert threads.jobs_at_once([config_with()] * 9) == 4
    assert threads.jobs_at_once([config_with()] * 3) == 3
    assert threads.jobs_at_once([config_with(workers=7)] * 9) == 7
    monkeypatch.setattr(threads, "_available_bytes", lambda: 1.5e9)
    assert threads.jobs_at_once([config_with()] * 9) == 2
