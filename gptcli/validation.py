"""Checks that need more than one setting at once; each says which values clash and what would be right."""

import os
import re

from gptcli.errors import UserError
from gptcli.model.parameters import parameter_count

# Weights, gradients and Adam's two moments, in fp32.
_BYTES_PER_PARAMETER = 16
_BYTES_PER_NUMBER = 4
_BYTES_PER_TOKEN = 16  # input and target, int64
_BYTES_PER_WINDOW = 64 * 16  # its starts, which are drawn for 64 steps at once
# A block keeps at least this many vectors of the model's width for the backward pass.
_VECTORS_KEPT = 6
# recipe=walkthrough evaluates on as many batches at once.
_WALKTHROUGH_BATCHES = 100
# Every layer's parameters are named and listed; a model of more is a slip of the hand.
_MOST_LAYERS = 10_000


def validate(config):
    """Checks what can be checked before any data is read.

    Raises:
        UserError: two settings clash.
    """
    validate_model(config.model)
    _validate_recipe(config)
    if not re.fullmatch(r"\w[\w.+-]{0,99}", config.stage.name):
        # It is part of a folder's name.
        raise UserError(f"stage.name={config.stage.name} must be of letters, digits and _ . + - only")
    trainer, schedule = config.trainer, config.schedule
    if schedule.warmup_steps > trainer.steps:
        raise UserError(
            f"schedule.warmup_steps={schedule.warmup_steps} is longer than the run, trainer.steps={trainer.steps}"
        )
    if schedule.name == "constant" and schedule.final_fraction != 1.0:
        raise UserError(
            f"schedule.final_fraction={schedule.final_fraction} has no effect with schedule=constant;"
            " use schedule=linear or schedule=cosine"
        )
    if config.data.name != "text_file" and config.data.path is not None:
        raise UserError(f"data.path={config.data.path} has no effect with data={config.data.name}; use data=text_file")
    if config.data.name == "text_file" and not config.data.path:
        raise UserError("data=text_file needs data.path=FILE")


def validate_model(model):
    """Checks that the parts of a ModelConfig fit together.

    Raises:
        UserError: a part has nothing to act on, or a size does not divide.
    """
    if model.num_layers > _MOST_LAYERS:
        raise UserError(f"model.num_layers={model.num_layers} must be at most {_MOST_LAYERS}")
    _validate_width(model)
    _validate_parts(model)
    _validate_norm(model)


def _validate_width(model):
    if not model.lm_head:
        if model.embedding_dim is not None:
            raise UserError(
                f"model.embedding_dim={model.embedding_dim} has no effect while model.lm_head=false:"
                " the token table's rows are the logits"
            )
        if model.num_layers or model.position != "none" or model.final_norm:
            part = "blocks" if model.num_layers else "final_norm" if model.final_norm else "position"
            raise UserError(f"a bigram table (model.lm_head=false) has no place for {part}; use stage=3_7 or later")
        return
    if model.embedding_dim is None:
        raise UserError("model.lm_head=true needs model.embedding_dim, for example 32")
    width, heads = model.embedding_dim, model.num_heads
    if width % heads:
        divisors = [str(number) for number in range(1, min(width, 4096) + 1) if width % number == 0]
        shown = ", ".join(divisors[:-1]) + f" or {divisors[-1]}" if len(divisors) > 1 else divisors[0]
        widths = f"{width // heads * heads or heads} or {(width // heads + 1) * heads}"
        raise UserError(
            f"model.num_heads={heads} does not divide model.embedding_dim={width}; use {shown} heads,"
            f" or a width of {widths}"
        )


def _validate_parts(model):
    if model.num_layers and model.attention == "none" and model.feed_forward == "none":
        raise UserError(
            f"model.num_layers={model.num_layers} blocks would be empty: model.attention and model.feed_forward are none"
        )
    if not model.num_layers:
        for key, idle in (("attention", "none"), ("feed_forward", "none")):
            if getattr(model, key) != idle:
                raise UserError(f"model.{key}={getattr(model, key)} has no effect with model.num_layers=0")
        for key in ("residual", "extra_projection"):
            if getattr(model, key):
                raise UserError(f"model.{key}=true has no effect with model.num_layers=0")
        if model.dropout:
            raise UserError(f"model.dropout={model.dropout} has no effect with model.num_layers=0")
    if model.attention != "multi_head" and model.num_heads != 1:
        raise UserError(
            f"model.num_heads={model.num_heads} has no effect with model.attention={model.attention};"
            " set model.attention=multi_head, as from stage=4_2 on"
        )


def _validate_norm(model):
    if model.norm_placement == "post" and model.norm == "none":
        raise UserError(
            "model.norm_placement=post has nothing to place: model.norm is none; set model.norm=layer_norm,"
            " as from stage=4_9 on"
        )
    if model.norm != "none" and not model.num_layers:
        raise UserError(f"model.norm={model.norm} has no effect with model.num_layers=0")


def _validate_recipe(config):
    if config.recipe.name == "walkthrough":
        if config.trainer.eval_tokens is not None:
            raise UserError(
                f"trainer.eval_tokens={config.trainer.eval_tokens} has no effect with recipe=walkthrough,"
                " which evaluates on 100 random batches"
            )


def validate_size(model, vocabulary_size, *, trains=True):
    """Refuses a model that cannot fit in this machine's memory, before anything is allocated.

    Args:
        trains: count gradients and optimizer state, too.
    Raises:
        UserError: the model needs more than the machine has.
    """
    parameters = parameter_count(model, vocabulary_size)
    needed = parameters * (_BYTES_PER_PARAMETER if trains else _BYTES_PER_NUMBER)
    if model.position == "sinusoidal":
        needed += model.block_size * model.embedding_dim * _BYTES_PER_NUMBER
    purpose = "to train" if trains else "to load"
    _refuse_too_large(needed, f"the model's {parameters:,} parameters need", purpose)


def validate_batch(config):
    """Refuses batches that cannot fit in this machine's memory, before anything is allocated.

    What is counted is the least that any way of running a step holds: the tokens of a batch, and the
    activations of one window.

    Raises:
        UserError: a batch needs more than the machine has.
    """
    model, batch_size = config.model, config.trainer.batch_size
    evaluated = _WALKTHROUGH_BATCHES if config.recipe.name == "walkthrough" else 1
    tokens = batch_size * model.block_size * evaluated
    needed = tokens * _BYTES_PER_TOKEN + batch_size * _BYTES_PER_WINDOW
    what = f"trainer.batch_size={batch_size} windows of model.block_size={model.block_size} need"
    _refuse_too_large(needed, what, "at least")
    width, layers = model.embedding_dim or 0, model.num_layers
    vectors = model.block_size * layers * _VECTORS_KEPT
    what = (
        f"one window of model.block_size={model.block_size} through model.num_layers={layers} layers of"
        f" model.embedding_dim={width} needs"
    )
    _refuse_too_large(vectors * width * _BYTES_PER_NUMBER, what, "at least")


def _refuse_too_large(needed, what, purpose):
    available = physical_memory()
    if available and needed > available:
        amount = f"{needed / 2**30:,.1f} GiB"
        words = f"{purpose} {amount}" if purpose == "at least" else f"{amount} {purpose}"
        raise UserError(f"{what} {words}; this machine has {available / 2**30:,.1f} GiB")


def physical_memory():
    """Returns the machine's memory in bytes, or None where the system does not tell."""
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, ValueError, OSError):
        return None
