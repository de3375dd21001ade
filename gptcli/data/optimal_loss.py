"""The exact loss of the best predictor that sees the last k characters of a finite-state source.

What such a predictor knows is a belief: the probability of each state given the characters of its window.
Before the first character it is the stationary distribution, since the window starts anywhere in a long text;
each character turns it into the next belief by Bayes' rule. Different strings often lead to the same belief,
so that all beliefs form a graph of moderate size, built once, breadth first. Walking it gives the
distribution over beliefs after k characters, and with it the entropy of the next one. (Blackwell, "The
entropy of functions of finite-state Markov chains", 1957, introduced the process of beliefs.)

Nothing is sampled. Two approximations remain, both bounded. Beliefs that agree in every weight to 2^-40 count
as the same: reading on at most doubles the expected distance between two beliefs, so that 256 characters cost
less than 1e-6 nats. Beliefs too improbable to matter may be left out; their total probability
is then reported.
"""

from typing import NamedTuple

import numpy as np

_GRID = 2.0**40


class Beliefs(NamedTuple):
    """Several distributions over states, stored as their non-zero entries, sorted by (belief, state).

    belief, state, weight: (entries,) each; the weights of a belief add up to 1.
    """

    belief: np.ndarray
    state: np.ndarray
    weight: np.ndarray

    def chosen(self, numbers):
        """The beliefs of these ascending numbers, numbered anew from 0."""
        place = np.full(self.belief[-1] + 1, -1)
        place[numbers] = np.arange(len(numbers))
        kept = place[self.belief] >= 0
        return Beliefs(place[self.belief[kept]], self.state[kept], self.weight[kept])


class BeliefGraph(NamedTuple):
    """Edges between beliefs: one more character leads from source to target; belief 0 is where a window
    starts.

    source, target, probability: (edges,) each. entropy: (beliefs,) nats of the next character.
    lost: (beliefs,) the probability of a next character that leads out of the graph.
    """

    source: np.ndarray
    target: np.ndarray
    probability: np.ndarray
    entropy: np.ndarray
    lost: np.ndarray


def step(machine, beliefs):
    """Reads one character in every possible way.

    Returns (after, source, probability): the new beliefs, and for each of them the belief that it came from
    and the probability of the character that led to it.
    """
    first = np.searchsorted(machine.source, np.arange(len(machine.stationary) + 1))
    degree = np.diff(first)[beliefs.state]
    entry = np.repeat(np.arange(len(degree)), degree)
    edge = np.arange(len(entry)) + np.repeat(first[beliefs.state] - np.cumsum(degree) + degree, degree)
    symbols = int(machine.symbol.max()) + 1
    read = beliefs.belief[entry] * symbols + machine.symbol[edge]
    order = np.lexsort((machine.target[edge], read))
    read, state = read[order], machine.target[edge][order]
    joint = (beliefs.weight[entry] * machine.probability[edge])[order]
    fresh = np.append(True, (np.diff(read) != 0) | (np.diff(state) != 0))
    joint = np.add.reduceat(joint, np.flatnonzero(fresh))
    read, state = read[fresh], state[fresh]
    fresh = np.append(True, np.diff(read) != 0)
    probability = np.add.reduceat(joint, np.flatnonzero(fresh))
    belief = np.cumsum(fresh) - 1
    after = Beliefs(belief, state, joint / probability[belief])
    return after, read[fresh] // symbols, probability


def fingerprints(beliefs):
    """(beliefs,) 64-bit hashes of the states and of the weights rounded to the grid."""
    mixed = beliefs.state.astype(np.uint64) << np.uint64(41)
    mixed += np.rint(beliefs.weight * _GRID).astype(np.uint64)
    # The finalizer of SplitMix64 (Steele, Lea and Flood, 2014): every input bit reaches every output bit.
    for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):
        mixed = (mixed ^ (mixed >> np.uint64(shift))) * np.uint64(factor)
    mixed ^= mixed >> np.uint64(31)
    return np.add.reduceat(mixed, np.flatnonzero(np.append(True, np.diff(beliefs.belief) != 0)))


def belief_graph(machine, longest, negligible=0.0):
    """Builds the graph of all beliefs that up to `longest` characters can lead to.

    A belief that is less probable than `negligible` at the depth where it is first reached is left out as
    lost.
    """
    states = np.arange(len(machine.stationary))
    frontier = Beliefs(np.zeros_like(states), states, machine.stationary)
    numbers, mass = np.array([0]), np.array([1.0])
    known = {int(fingerprints(frontier)[0]): 0}
    edges, entropies = [], []
    for depth in range(longest + 1):
        after, source, probability = step(machine, frontier)
        entropies.append(np.bincount(source, -probability * np.log(probability), len(numbers)))
        prints, first, inverse = np.unique(fingerprints(after), return_index=True, return_inverse=True)
        reached = np.bincount(inverse, mass[source] * probability)
        target = np.array([known.get(value, -1) for value in prints.tolist()])
        # Characters read after the last depth lead outside the graph, where nobody looks.
        new = np.flatnonzero((target < 0) & (reached >= negligible) & (depth < longest))
        new = new[np.argsort(first[new])]
        target[new] = len(known) + np.arange(len(new))
        known.update(zip(prints[new].tolist(), target[new].tolist(), strict=True))
        edges.append((numbers[source], target[inverse], probability))
        if not len(new):
            break
        frontier, numbers, mass = after.chosen(first[new]), target[new], reached[new]
    return _assembled(edges, np.concatenate(entropies))


def _assembled(edges, entropy):
    source, target, probability = (np.concatenate(column) for column in zip(*edges, strict=True))
    kept = target >= 0
    lost = np.bincount(source[~kept], probability[~kept], len(entropy))
    return BeliefGraph(source[kept], target[kept], probability[kept], entropy, lost)


def conditional_entropies(graph, longest):
    """The entropy in nats of the next character given the k before it, for k = 0..longest.

    Returns (entropies, lost), each (longest + 1,): lost[k] is the probability of the strings of k characters
    that were left out; the true entropy lies between entropies[k] and entropies[k] + lost[k] * log(size of
    the alphabet).
    """
    mass = np.zeros(len(graph.entropy))
    mass[0] = 1.0
    entropies, lost = [], [0.0]
    for _ in range(longest + 1):
        entropies.append(mass @ graph.entropy)
        lost.append(lost[-1] + mass @ graph.lost)
        mass = np.bincount(graph.target, mass[graph.source] * graph.probability, len(mass))
    return np.array(entropies), np.array(lost[:-1])
