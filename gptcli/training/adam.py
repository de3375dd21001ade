"""Adam and AdamW on flat parameters: one fused call a member, and no update from what is not finite."""

import torch

EPSILON = 1e-8


class FlatAdam:
    """Adam (Kingma and Ba, 2015) with L2 decay, or AdamW (Loshchilov and Hutter, 2019) with decoupled decay.

    Equal to torch.optim.Adam and AdamW on each member. Nothing here waits for a result on the device.

    Args:
        parameters: FlatParameters.
        settings: one object a member with name (adam or adamw), betas and weight_decay.
        grad_clip: largest norm of a member's gradient; 0 leaves gradients alone.
    """

    def __init__(self, parameters, settings, grad_clip):
        self.parameters, self.settings, self.grad_clip = parameters, settings, grad_clip
        self.exp_avg = torch.zeros_like(parameters.values)
        self.exp_avg_sq = torch.zeros_like(parameters.values)
        self.steps = torch.zeros(len(settings), device=parameters.values.device)

    @torch.no_grad()
    def step(self, losses, learning_rates):
        """Updates each member whose loss and gradient norm are finite.

        Returns the norms before clipping, (members,).

        Args:
            losses: (members,).
            learning_rates: list of float, one a member.
        """
        gradients = self.parameters.gradients
        norms = torch.linalg.vector_norm(gradients, dim=1)
        if self.grad_clip:
            gradients.mul_((self.grad_clip / (norms + 1e-6)).clamp(max=1.0)[:, None])
        finite = torch.isfinite(losses + norms).to(self.steps.dtype)
        self.steps.add_(finite)
        skipped = 1.0 - finite
        for member, settings in enumerate(self.settings):
            fused = torch._fused_adamw_ if settings.name == "adamw" else torch._fused_adam_
            fused(
                [self.parameters.values[member]],
                [gradients[member]],
                [self.exp_avg[member]],
                [self.exp_avg_sq[member]],
                [],
                [self.steps[member]],
                lr=learning_rates[member],
                beta1=settings.betas[0],
                beta2=settings.betas[1],
                weight_decay=settings.weight_decay,
                eps=EPSILON,
                amsgrad=False,
                maximize=False,
                grad_scale=None,
                found_inf=skipped[member],
            )
        return norms

    def state(self, member):
        """Returns copies of a member's moments and step count: exp_avg.<name>, exp_avg_sq.<name>, step."""
        state = {"step": self.steps[member].clone()}
        for key in ("exp_avg", "exp_avg_sq"):
            named = self.parameters.named(getattr(self, key), member)
            state |= {f"{key}.{name}": tensor.clone() for name, tensor in named.items()}
        return state

    def load_state(self, member, state):
        """Takes what state returned; raises KeyError or ValueError where a tensor is missing or misshapen."""
        for key in ("exp_avg", "exp_avg_sq"):
            tensors = {name: state[f"{key}.{name}"] for name in self.parameters.shapes}
            self.parameters.load(getattr(self, key), member, tensors)
        self.steps[member] = float(state["step"])
