"""The weights of one or several equal models as one tensor, for an optimizer and a norm of one call each."""

import torch


class FlatParameters:
    """Keeps all weights in `values` and their gradients in `gradients`, both (members, parameters).

    The modules' own parameters become views of these, so that a module always sees the current weights.

    Args:
        models: list of modules with the same parameter names and shapes; moved to device.
    """

    def __init__(self, models, device):
        for model in models:
            model.to(device)
        self.shapes = {name: parameter.shape for name, parameter in models[0].named_parameters()}
        flat = [torch.cat([parameter.detach().reshape(-1) for parameter in m.parameters()]) for m in models]
        self.values = torch.stack(flat)
        self.gradients = torch.zeros_like(self.values)
        for member, model in enumerate(models):
            values, gradients = self.named(self.values, member), self.named(self.gradients, member)
            for name, parameter in model.named_parameters():
                parameter.data = values[name]
                parameter.grad = gradients[name]

    def named(self, flat, member):
        """Returns a member's row of a tensor shaped like values, as name -> view of the parameter's shape."""
        pieces = flat[member].split([shape.numel() for shape in self.shapes.values()])
        return {
            name: piece.view(shape) for (name, shape), piece in zip(self.shapes.items(), pieces, strict=True)
        }

    def load(self, flat, member, tensors):
        """Copies name -> tensor into a member's row of a tensor shaped like values.

        Raises:
            KeyError: a parameter is missing.
            ValueError: a tensor has the wrong shape.
        """
        for name, view in self.named(flat, member).items():
            if tensors[name].shape != view.shape:
                shape = tuple(tensors[name].shape)
                raise ValueError(f"{name} is {shape}, the model's is {tuple(view.shape)}")
            view.copy_(tensors[name])
