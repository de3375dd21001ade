"""A grammar of slots as a finite-state machine over characters, with known probabilities.

A state is a slot of a grammar and the part of its text that has been written. The machine is unifilar: a
state and the character that it emits give the next state.
"""

from itertools import pairwise
from typing import NamedTuple

import numpy as np


class Machine(NamedTuple):
    """Edges sorted by source: edge e leads from source[e] to target[e] and emits symbol[e].

    source, symbol, target, probability: (edges,) each; the probabilities of a source's edges add up to 1.
    stationary: (states,) how often, in a long text, each state is the one before the next character.
    """

    source: np.ndarray
    symbol: np.ndarray
    target: np.ndarray
    probability: np.ndarray
    stationary: np.ndarray

    @property
    def entropy_rate(self):
        """Nats per character for a reader who knows the state: what no predictor can go below."""
        return float(-(self.stationary[self.source] * self.probability * np.log(self.probability)).sum())


def build_machine(grammar, alphabet):
    """The machine of a grammar: {slot: list of (text, weight, following slot)}.

    Raises ValueError where one text of a slot begins another of its texts: the end of a text must show.
    """
    visits = _visits(grammar)
    states, edges, weights = {}, {}, []

    def state(key):
        if key not in states:
            states[key] = len(states)
            weights.append(0.0)
        return states[key]

    for slot, choices in grammar.items():
        _check_prefix_free(slot, [choice[0] for choice in choices])
        for text, weight, following in choices:
            for position, character in enumerate(text):
                source = state((slot, text[:position]))
                ends = position + 1 == len(text)
                target = state((following, "") if ends else (slot, text[: position + 1]))
                weights[source] += visits[slot] * weight
                edge = (source, alphabet.index(character), target)
                edges[edge] = edges.get(edge, 0.0) + visits[slot] * weight
    ordered = sorted(edges)
    source, symbol, target = np.array(ordered, dtype=np.int64).T
    stationary = np.array(weights)
    probability = np.array([edges[edge] for edge in ordered]) / stationary[source]
    return Machine(source, symbol, target, probability, stationary / stationary.sum())


def _check_prefix_free(slot, texts):
    for first, second in pairwise(sorted(texts)):
        if not first or second.startswith(first):
            raise ValueError(f"slot {slot}: {first!r} begins {second!r}, so its end would not show")


def _visits(grammar):
    """How often each slot is visited in the long run: the solution of visits = visits @ transitions."""
    numbers = {slot: number for number, slot in enumerate(grammar)}
    transitions = np.zeros((len(numbers), len(numbers)))
    for slot, choices in grammar.items():
        for _, weight, following in choices:
            transitions[numbers[slot], numbers[following]] += weight
    equations = np.vstack([transitions.T - np.eye(len(numbers)), np.ones(len(numbers))])
    visits = np.linalg.lstsq(equations, np.append(np.zeros(len(numbers)), 1.0), rcond=None)[0]
    return dict(zip(numbers, visits.tolist(), strict=True))
