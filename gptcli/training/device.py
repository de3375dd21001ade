"""Where a run computes: the device, and the precision that suits it."""

import torch

from gptcli.errors import UserError


def choose_device(setting):
    """Returns the torch.device that trainer.device names.

    Raises:
        UserError: the name is no device, or the machine does not have it.
    """
    if setting == "auto":
        if torch.cuda.is_available():
            return torch.device("cuda")
        return torch.device("mps" if torch.backends.mps.is_available() else "cpu")
    try:
        device = torch.device(setting)
    except RuntimeError:
        raise UserError(f"trainer.device={setting} is not a device; use auto, cpu, cuda, cuda:1 or mps") from None
    counts = {
        "cpu": 1,
        "cuda": torch.cuda.device_count(),
        "mps": int(torch.backends.mps.is_available()),
    }
    if device.type not in counts:
        raise UserError(f"trainer.device={setting} is not supported; use auto, cpu, cuda, cuda:1 or mps")
    if (device.index or 0) >= counts[device.type]:
        there = ", ".join(name for name, count in counts.items() if count)
        raise UserError(f"trainer.device={setting} is not there; this machine has {there}")
    return device


def choose_precision(setting, device):
    """Returns fp32 or bf16; auto means fp32 on a CPU and bf16 on a GPU that has it."""
    if setting != "auto":
        return setting
    return "bf16" if device.type == "cuda" and torch.cuda.is_bf16_supported() else "fp32"
