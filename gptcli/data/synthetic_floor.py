"""The best possible loss on the synthetic play at every context length, computed from its grammar."""

from functools import cache

from gptcli.data.finite_state import build_machine
from gptcli.data.optimal_loss import belief_graph, conditional_entropies
from gptcli.data.synthetic_grammar import ALPHABET, slots

# Leaves out strings of total probability below 1e-7 up to 256 characters, which is an error below 5e-7 nats.
_NEGLIGIBLE = 1e-20


def floor(context_length):
    """The least expected loss in nats per character of windows of block_size = context_length characters.

    Position t = 1..context_length of a window predicts the next character from the t characters so far, and
    the window starts at an unknown place of the text. This is the mean of `floor_by_position` over the
    positions.
    """
    return float(floor_by_position(context_length).mean())


@cache
def floor_by_position(context_length):
    """(context_length,) least expected loss, in nats, at each position of a window."""
    graph = belief_graph(machine(), context_length, _NEGLIGIBLE)
    entropies, _ = conditional_entropies(graph, context_length)
    return entropies[1:]


@cache
def machine():
    """The play's grammar as a finite-state machine over characters."""
    return build_machine(slots(), ALPHABET)
