"""Losses and gradients of one or several small models, computed by the compiled kernels."""

import torch

from gptcli.training.native.tape import Tape

# Rows that a thread works on at once. A narrow model's fit the cache; a wide one's do not, and more rows then make up
# for reading and writing the gradients of its weights once for each chunk.
_ROWS_AT_ONCE = 64
_ROWS_AT_ONCE_WIDE = 256
_WIDE = 64


class NativeGradient:
    """Computes what EagerGradient computes, on the CPU; the same bits on any number of threads.

    Dropout masks are a pure function of a member's seed and the number of the step.

    Args:
        library: what load_library returned.
        models: list of GPT, equal but for their weights and dropout rates.
        parameters: the FlatParameters that hold their weights.
        seeds: one integer a member, for dropout.
        threads: number of threads to compute on.
        bf16: whether matrix products round their factors to bf16; sums and all else are fp32.
    """

    def __init__(self, library, models, parameters, seeds, threads, bf16=False):
        self.library, self.models, self.parameters = library, models, parameters
        self.seeds, self.threads, self.bf16 = seeds, threads, bf16
        self.rates = torch.tensor([model.config.dropout for model in models])
        position = models[0].position_embedding
        self.constants = getattr(position, "table", torch.zeros(1)).contiguous()
        self._programs = {}
        self._workspaces = {}

    def __call__(self, x, y, draws):
        """Writes the gradients of the mean losses into parameters.gradients; returns the losses (members,).

        Args:
            x, y: (members, batch, time) int64.
            draws: number of each member's step, list of int.
        """
        losses = torch.empty(x.shape, dtype=torch.float32)
        keys = torch.tensor([_key(seed, draw) for seed, draw in zip(self.seeds, draws, strict=True)])
        self._run(self.parameters.values, x, y, losses, self.parameters.gradients, keys)
        return losses.flatten(1).mean(1)

    def token_losses(self, x, y, member=None):
        """Returns the losses without dropout, (members, windows, time), or those of one member, (1, ...)."""
        losses = torch.empty(x.shape, dtype=torch.float32)
        values = self.parameters.values if member is None else self.parameters.values[member : member + 1]
        self._run(values, x, y, losses, None, torch.zeros(len(values), dtype=torch.int64))
        return losses

    def _run(self, values, x, y, losses, gradients, keys):
        x, y = x.contiguous(), y.contiguous()
        members, windows, time = x.shape
        shape, operations, widths = self._program(time)
        wide = self.models[0].token_embedding.weight.shape[1] >= _WIDE
        chunk = max(1, (_ROWS_AT_ONCE_WIDE if wide else _ROWS_AT_ONCE) // time)
        workspace = self._workspace(time, chunk)
        status = self.library.run(
            shape.data_ptr(), operations.data_ptr(), widths.data_ptr(), members,
            values.data_ptr(), self.constants.data_ptr(), self.rates.data_ptr(), keys.data_ptr(),
            x.data_ptr(), y.data_ptr(), windows, chunk, self.threads, int(self.bf16),
            losses.data_ptr(), None if gradients is None else gradients.data_ptr(), workspace.data_ptr(),
        )  # fmt: skip
        if status == 1:
            raise IndexError(f"a symbol lies outside the vocabulary of {self.models[0].vocabulary_size}")
        if status:
            raise MemoryError("not enough memory for a training step")

    def _program(self, time):
        """Returns the tape for windows of `time` tokens as the tensors that the kernels read."""
        if time not in self._programs:
            model = self.models[0]
            tape = Tape(model.config, model.vocabulary_size, time, bool(self.rates.any()))
            parts = (tape.shape(), tape.operation_table(), tape.widths)
            self._programs[time] = tuple(torch.tensor(part, dtype=torch.int64) for part in parts)
        return self._programs[time]

    def _workspace(self, time, chunk):
        if time not in self._workspaces:
            tables = [table.data_ptr() for table in self._program(time)]
            floats = self.library.workspace_floats(*tables, len(self.models), chunk, self.threads)
            self._workspaces[time] = torch.zeros(floats)
        return self._workspaces[time]


def _key(seed, draw):
    """Mixes a seed and the number of a step into 63 bits."""
    return (seed * 0x9E3779B97F4A7C15 + draw * 0xD1B54A32D192ED03 + 1) % 2**63
