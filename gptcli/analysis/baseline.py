"""Which group each group is compared with: one for all, one for each value of the other settings, or the one before."""

from collections import Counter
from dataclasses import dataclass

from gptcli.analysis.grouping import comparable, leaf, shown
from gptcli.errors import UserError

PREVIOUS = "previous"
_HINT = "; write --baseline as a group's name, KEY=VALUE or previous"


@dataclass(frozen=True)
class Baselines:
    """positions: for each group the index of its baseline, its own for a baseline, None where there is none.

    words complete the heading "against ...".
    """

    positions: tuple
    words: str


def find_baselines(grouping, wanted=None):
    """Returns the Baselines of a grouping: the first group on the ladder, or what wanted describes.

    Args:
        wanted: a group's name, a value that one setting alone has, KEY=VALUE (several: KEY=VALUE,KEY=VALUE), or
            previous. Where it fits several groups, each group is compared with the one that has the same other
            settings.

    Raises:
        UserError: wanted describes no group, or does not say which setting it is about.
    """
    groups = grouping.groups
    labels = [group.label for group in groups]
    if wanted is None or wanted in labels:
        return _one(labels, 0 if wanted is None else labels.index(wanted))
    if wanted == PREVIOUS:
        return Baselines(tuple(max(index - 1, 0) for index in range(len(groups))), "the one before")
    named = _named_settings(grouping, wanted)
    found = [index for index, group in enumerate(groups) if named and _has(group, named)]
    if not found:
        raise UserError(f"--baseline {wanted} is not one of the groups: {', '.join(labels)}{_HINT}")
    return _one(labels, found[0]) if len(found) == 1 else _matched(grouping, wanted, named, found)


def _one(labels, index):
    return Baselines((index,) * len(labels), labels[index])


def _named_settings(grouping, wanted):
    """Returns {key: value as text} that wanted asks for."""
    names = grouping.names
    if "=" not in wanted:
        keys = [key for key in names if any(shown(group.settings[key]) == wanted for group in grouping.groups)]
        if len(keys) > 1:
            words = ", ".join(f"{names[key]}={wanted}" for key in keys)
            raise UserError(f"--baseline {wanted} fits more than one setting: {words}{_HINT}")
        return dict.fromkeys(keys, wanted)
    found = {}
    for name, value in (part.partition("=")[::2] for part in wanted.replace(" ", ",").split(",") if part):
        keys = [key for key in names if name in (key, names[key], leaf(key))]
        if not keys:
            return {}
        found[keys[0]] = value
    return found


def _has(group, named):
    return all(shown(group.settings[key]) == value for key, value in named.items())


def _matched(grouping, wanted, named, found):
    rest = [key for key in grouping.names if key not in named]

    def place(group):
        return tuple(comparable(group.settings[key]) for key in rest)

    by_place = {place(grouping.groups[index]): index for index in found}
    positions = tuple(by_place.get(place(group)) for group in grouping.groups)
    return Baselines(positions, f"{wanted} at the same {' and '.join(grouping.names[key] for key in rest)}")


def most_common(baselines):
    """Returns the index of the group that most groups are compared with."""
    known = [position for position in baselines.positions if position is not None]
    return Counter(known).most_common(1)[0][0]
