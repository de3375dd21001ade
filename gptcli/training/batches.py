"""The stream of training batches of one run, drawn and gathered for many steps at once."""

from gptcli.data.windows import CounterSampler, gather
from gptcli.errors import RunError

_TOKENS_AT_ONCE = 2**18


class TrainingBatches:
    """Batches for steps 0, 1, 2, ... from one split, reproducible from a seed and resumable at any step.

    Args:
        tokens: the training split, one-dimensional.
        walkthrough: the WalkthroughSampler to share with evaluation, or None for the default recipe.
    """

    def __init__(self, tokens, block_size, batch_size, seed, walkthrough=None):
        self.tokens = tokens
        self.block_size = block_size
        self.batch_size = batch_size
        self.walkthrough = walkthrough
        self.counter = None if walkthrough else CounterSampler(len(tokens), block_size, batch_size, seed)
        self.steps_at_once = max(1, min(256, _TOKENS_AT_ONCE // (batch_size * block_size)))
        self._state_before = walkthrough.state() if walkthrough else None
        self._first = 0

    def draw(self, step, count):
        """Returns inputs and targets of the steps step .. step + count - 1, each (count, batch, time).

        Targets are the inputs shifted by one. Steps are asked for in order.
        """
        if self.walkthrough:
            self._state_before, self._first = self.walkthrough.state(), step
            starts = self.walkthrough.draw(len(self.tokens), self.block_size, count * self.batch_size)
        else:
            starts = self.counter.starts(step, count).reshape(-1)
        x, y = gather(self.tokens, starts, self.block_size)
        shape = (count, self.batch_size, self.block_size)
        return x.view(shape), y.view(shape)

    def mark(self, step):
        """Says that all draws up to step are used, so that a state taken now starts from here."""
        if self.walkthrough:
            self._state_before, self._first = self.walkthrough.state(), step

    def state(self, step):
        """Returns what a run that goes on at step needs, JSON-able; None when the seed and the step are enough."""
        if not self.walkthrough:
            return None
        return {"random": self._state_before, "used_steps": step - self._first}

    def restore(self, state, step):
        """Goes on at step from what state returned there."""
        if not self.walkthrough:
            return
        self.walkthrough.restore(state["random"])
        used = state["used_steps"]
        if type(used) is not int or not 0 <= used <= self.steps_at_once:
            raise RunError(f"the stored place in the random numbers is damaged: {used!r} steps")
        self.walkthrough.draw(len(self.tokens), self.block_size, used * self.batch_size)
        self.mark(step)
