"""gptcli params: parameters by module, FLOPs per token, memory."""

import json
from math import prod

from gptcli.terminal import table

SUMMARY = """Count a model's parameters by module and estimate the cost of training it, without building it.

FLOPs per token are 6 per weight of a matrix product and 12 x layers x context x width for attention (Kaplan et al.,
2020; Hoffmann et al., 2022). Memory is weights, gradients and Adam's moments in fp32 plus what the forward pass keeps
for the backward pass."""
EXAMPLES = "examples:\n  gptcli params stage=4_10\n  gptcli params stage=5_11 model.num_layers=12 --json"


def add_arguments(parser):
    """Declares what the command takes."""
    parser.add_argument("overrides", nargs="*", metavar="KEY=VALUE", help="settings, as for train")
    parser.add_argument("--vocabulary", type=int, default=65, metavar="N", help="symbols (default 65)")
    parser.add_argument("--config-dir", action="append", default=[], metavar="DIR", help="as for train")
    parser.add_argument("--json", action="store_true", help="print JSON")


def run(arguments):
    """Prints the counts; returns the exit status."""
    from gptcli.composition import compose, hydra_session, prepare
    from gptcli.errors import UserError
    from gptcli.validation import validate

    if arguments.vocabulary < 1:
        raise UserError(f"--vocabulary {arguments.vocabulary} must be at least 1")
    overrides = prepare(arguments.overrides, config_directories=arguments.config_dir)
    with hydra_session():
        config, _ = compose(overrides, config_directories=arguments.config_dir)
    validate(config)
    facts = _facts(config, arguments.vocabulary)
    if arguments.json:
        print(json.dumps(facts, indent=2))
        return 0
    rows = [(name, "x".join(map(str, one["shape"])), f"{one['parameters']:,}") for name, one in facts["tensors"].items()]
    print("\n".join(table([*rows, ("total", "", f"{facts['parameters']:,}")], ("tensor", "shape", "parameters"), {2})))
    print(f"\ntraining  {facts['flops_per_token']:,} FLOPs per token, {facts['flops_per_step']:,} per step")
    memory = {key: f"{value / 2**20:,.1f} MiB" for key, value in facts["memory_bytes"].items()}
    print(f"memory    {memory['state']} weights, gradients and moments; about {memory['activations']} activations")
    return 0


def _facts(config, vocabulary):
    from gptcli.analysis.flops import flops_per_token
    from gptcli.model.parameters import parameter_shapes

    shapes = parameter_shapes(config.model, vocabulary)
    parameters = sum(map(prod, shapes.values()))
    tokens = config.trainer.batch_size * config.model.block_size
    flops = flops_per_token(config.model, vocabulary)
    return {
        "stage": config.stage.name,
        "parameters": parameters,
        "tensors": {name: {"shape": list(shape), "parameters": prod(shape)} for name, shape in shapes.items()},
        "flops_per_token": flops,
        "flops_per_step": flops * tokens,
        "memory_bytes": {
            "state": 16 * parameters,
            "activations": 4 * tokens * _values_kept_per_token(config.model, vocabulary),
        },
    }


def _values_kept_per_token(model, vocabulary):
    """Returns about how many values the backward pass needs of each token's forward pass.

    Per block: inputs of both sub-layers and their norms, query, key, value and the mixed heads, the hidden layer before
    and after the ReLU, and the attention weights where they are kept (dropout on them); then the logits and their
    gradient.
    """
    if not model.lm_head:
        return 2 * vocabulary
    width = model.embedding_dim
    attention = 5 * width if model.attention != "none" else 0
    if model.attention != "none" and model.dropout and model.dropout_placement == "everywhere":
        attention += 3 * model.num_heads * model.block_size
    feed_forward = 8 * width if model.feed_forward != "none" else 0
    norms = 2 * width if model.norm != "none" else 0
    return model.num_layers * (attention + feed_forward + norms + 2 * width) + 2 * width + 2 * vocabulary
