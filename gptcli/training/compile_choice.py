"""Whether training steps are compiled (trainer.compile), and the one line that says why."""

import os

from gptcli.data.cache import user_cache_directory
from gptcli.model.parameters import parameter_count
from gptcli.training.device import choose_precision
from gptcli.training.engine import why_not_natively
from gptcli.training.native.library import NoLibrary, find_compiler, load_library

# torch.compile takes about a minute for a model of ordinary depth, and saves most on a GPU.
_STEPS_THAT_PAY_TORCH = 2000
# The kernels cut a batch into parts that each read all weights and write a gradient of their own. Measured in fp32 from
# width 128 to 512 and from 256 to 2,048 tokens a step, that makes them slower than torch, by up to a third, from about
# this many parameters for each token on.
_PARAMETERS_PER_TOKEN_THAT_SUIT_TORCH = 4500


def choose_compile(config, device, vocabulary_size, members=1):
    """Returns whether to compile, and why in one line.

    The choice depends on settings alone, not on what is cached or on steps already done: a resumed run then
    computes what the uninterrupted one would have, to the last bit. The kernels do not even depend on the number of
    steps, so that a run that is made longer computes what one of that length would have: compiling them takes a few
    seconds, once a machine, and they save 3 milliseconds or more a step.

    Args:
        config: the Config; device: torch.device; members: models trained together.
    """
    setting, steps = config.trainer.compile, config.trainer.steps * members
    if setting is False:
        return False, "steps are not compiled, as trainer.compile=false asks"
    precision = choose_precision(config.trainer.precision, device)
    has_seeds = config.recipe.name != "walkthrough"
    obstacle = why_not_natively(config.model, vocabulary_size, precision, device, has_seeds)
    if obstacle is None:
        slower = _why_slower(config, vocabulary_size, precision)
        return (False, f"steps are not compiled: {slower}") if slower else _kernels()
    if setting == "auto" and (device.type != "cuda" or steps < _STEPS_THAT_PAY_TORCH):
        # On a CPU torch.compile was no faster than plain autograd at any size that was measured.
        why = "too few steps to pay for torch.compile" if device.type == "cuda" else f"not by our kernels: {obstacle}"
        return False, f"steps are not compiled ({why})"
    return _torch_compile(obstacle)


def _why_slower(config, vocabulary_size, precision):
    """Returns in words why auto prefers torch to kernels that would serve, or None."""
    if config.trainer.compile != "auto" or precision != "fp32":
        return None
    parameters = parameter_count(config.model, vocabulary_size)
    tokens = config.trainer.batch_size * config.model.block_size
    if parameters <= _PARAMETERS_PER_TOKEN_THAT_SUIT_TORCH * tokens:
        return None
    return f"torch is faster at {tokens:,} tokens a step for {parameters:,} parameters"


def _kernels():
    try:
        load_library()
    except NoLibrary as error:
        return False, f"steps are not compiled, which is slower: {error}"
    return True, "steps run in the project's compiled kernels, which cover this model"


def _torch_compile(obstacle):
    if find_compiler() is None:
        return False, "steps are not compiled: torch.compile needs a C++ compiler, and there is none"
    # Compiled code outlives the temporary directory that is torch's default.
    os.environ.setdefault("TORCHINDUCTOR_CACHE_DIR", str(user_cache_directory() / "inductor"))
    return True, f"steps run through torch.compile (not the project's kernels: {obstacle})"
