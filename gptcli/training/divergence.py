"""Where a loss or gradient stopped being finite."""

import math

import torch
from torch.nn import functional as F


def describe_nonfinite(model, x, y, step, loss, grad_norm):
    """Returns one line that names the step and the module whose values went bad first.

    The model still has the weights from before the step, since a step that is not finite changes nothing; the step is
    repeated with every module watched, forward first, then backward.

    Args:
        x, y: the step's inputs and targets, (batch, time).
    """
    what = f"the loss is {loss}" if not math.isfinite(loss) else f"the gradient norm is {grad_norm}"
    name = first_nonfinite_module(model, x, y)
    where = f", first in {name}" if name else ""
    return (
        f"not finite at step {step}: {what}{where}; lower optimizer.learning_rate or set trainer.grad_clip=1"
        " (trainer.on_nonfinite=skip leaves such steps out)"
    )


def first_nonfinite_module(model, x, y):
    """Returns the name and value kind of the first module that puts out, or hands back, a value that is not finite."""
    for name, parameter in model.named_parameters():
        if not torch.isfinite(parameter).all():
            return f"the weights {name}"
    bad = []
    handles = []
    for name, module in model.named_modules():
        if name and not list(module.children()):
            handles.append(module.register_forward_hook(_output_watcher(bad, name)))
    # Hooks run as the backward pass comes by, which is not the order in which a block names its parts.
    handles += [
        parameter.register_hook(_gradient_watcher(bad, name)) for name, parameter in model.named_parameters()
    ]
    try:
        with torch.enable_grad():
            logits = model(x)
            loss = F.cross_entropy(logits.flatten(0, 1).float(), y.flatten())
            if bad or not torch.isfinite(loss):
                return bad[0] if bad else "the loss of finite logits"
            torch.autograd.grad(loss, list(model.parameters()), allow_unused=True)
    finally:
        for handle in handles:
            handle.remove()
    return bad[0] if bad else None


def _output_watcher(bad, name):
    def watch(_module, _inputs, output):
        if isinstance(output, torch.Tensor) and not torch.isfinite(output).all():
            bad.append(f"the output of {name}")

    return watch


def _gradient_watcher(bad, name):
    def watch(gradient):
        if not torch.isfinite(gradient).all():
            bad.append(f"the gradient of {name}")

    return watch
