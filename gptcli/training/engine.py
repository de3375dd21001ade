"""How a training step is run: the one place that chooses autograd, compiled kernels or torch.compile."""

import torch

from gptcli.training.adam import FlatAdam
from gptcli.training.eager_gradient import EagerGradient
from gptcli.training.flat_parameters import FlatParameters
from gptcli.training.native.gradient import NativeGradient
from gptcli.training.native.library import load_library, why_no_bf16
from gptcli.training.native.tape import why_no_tape


class Engine:
    """One or several models of one shape (members), their gradients and their optimizer.

    Members are independent: each learns the same alone and among others. step never waits for the device, and
    changes neither weights nor moments of a member whose loss or gradient norm is not finite.

    Args:
        models: the members, list of GPT.
        gradient: computes losses and gradients into parameters (EagerGradient, NativeGradient).
    """

    def __init__(self, models, parameters, gradient, optimizer):
        self.models, self.parameters = models, parameters
        self.gradient, self.optimizer = gradient, optimizer
        self.device = parameters.values.device
        # Counts steps tried, those without an update included: dropout masks are drawn from it.
        self._draws = [0] * len(models)

    def step(self, x, y, learning_rates):
        """Makes one update of each member; returns its losses and gradient norms before clipping.

        Args:
            x, y: inputs and targets (members, batch, time), or (batch, time) for a single member; int64.
            learning_rates: list of float, one a member.
        Returns:
            losses and norms, each (members,).
        """
        losses = self.gradient(self._by_member(x), self._by_member(y), self._draws)
        norms = self.optimizer.step(losses, learning_rates)
        self._draws = [draw + 1 for draw in self._draws]
        return losses, norms

    def evaluate(self, x, y):
        """Returns each member's mean loss in nats without dropout, float64 (members,).

        Args:
            x, y: (members, windows, time), or (windows, time) that all members share.
        """
        x, y = (self._by_member(tokens).expand(len(self.models), -1, -1) for tokens in (x, y))
        return self.gradient.token_losses(x.to(self.device), y.to(self.device)).double().mean((1, 2))

    def window_losses(self, member, x, y):
        """Returns one member's losses without dropout, (windows, time), on x and y (windows, time)."""
        return self.gradient.token_losses(x.to(self.device)[None], y.to(self.device)[None], member)[0]

    def model(self, member):
        """Returns the member's module, in evaluation mode; it sees the current weights."""
        return self.models[member].eval()

    def model_state(self, member):
        """Returns copies of the member's weights by their canonical names."""
        named = self.parameters.named(self.parameters.values, member)
        return {name: tensor.clone() for name, tensor in named.items()}

    def load_model_state(self, member, tensors):
        """Takes weights by name; raises KeyError or ValueError where one is missing or misshapen."""
        self.parameters.load(self.parameters.values, member, tensors)

    def optimizer_state(self, member):
        """Returns copies of exp_avg.<name>, exp_avg_sq.<name>, step (updates) and draws (steps tried)."""
        return self.optimizer.state(member) | {"draws": torch.tensor(self._draws[member])}

    def load_optimizer_state(self, member, tensors):
        """Takes what optimizer_state returned; draws may be missing, and is then the number of updates."""
        self.optimizer.load_state(member, tensors)
        self._draws[member] = int(tensors.get("draws", tensors["step"]))

    def _by_member(self, tokens):
        return tokens if tokens.dim() == 3 else tokens[None]


def build_engine(
    models, *, optimizers, grad_clip=0.0, precision="fp32", compile=False, device="cpu", seeds=None
):
    """Returns the Engine for models of one shape.

    Args:
        models: list of GPT; they are taken over, and their parameters become views.
        optimizers: one object a member with name (adam or adamw), betas and weight_decay.
        compile: on a CPU the project's own kernels where they cover the model, else torch.compile.
        seeds: one integer a member; dropout masks are then a function of seed and step alone. None draws
            them from torch's generator as the plain modules would, which the kernels cannot.
    On the kernels' path torch is left with one thread; the kernels take the number that was set before.

    Raises:
        NoLibrary: compile is asked for, and the kernels cannot be compiled.
    """
    parameters = FlatParameters(models, torch.device(device))
    optimizer = FlatAdam(parameters, optimizers, grad_clip)
    config, vocabulary_size = models[0].config, models[0].vocabulary_size
    if compile and why_not_natively(config, vocabulary_size, precision, device, seeds is not None) is None:
        threads = torch.get_num_threads()
        seeds = seeds or [0] * len(models)
        bf16 = precision == "bf16"
        gradient = NativeGradient(load_library(), models, parameters, seeds, threads, bf16=bf16)
        # What is left to torch is too small to share: its threads would cost more than they bring.
        torch.set_num_threads(1)
    else:
        gradient = EagerGradient(models, parameters, precision=precision, compile=compile, seeds=seeds)
    return Engine(models, parameters, gradient, optimizer)


def why_not_natively(config, vocabulary_size, precision, device, has_seeds):
    """Returns in words why the project's own kernels do not serve, or None when they do."""
    if torch.device(device).type != "cpu":
        return "they run on a CPU"
    if config.dropout and not has_seeds:
        return "dropout is to repeat the random numbers of torch"
    return why_no_tape(config, vocabulary_size) or (why_no_bf16() if precision == "bf16" else None)
