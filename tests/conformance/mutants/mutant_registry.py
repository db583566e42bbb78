"""Ways to break the broker: each breaks one function of it, and says what of that a history must show."""

import itertools
from collections.abc import Callable
from typing import NamedTuple

OURS = "written"
"""How the topics of the workload begin: the broker's own are left alone."""


class Mutant(NamedTuple):
    """A way to break the broker.

    `breaks(patch, hit)` does it; `hit` is called whenever something goes wrong. It shows as one of `kinds` at least.
    """

    name: str
    kinds: frozenset
    breaks: Callable
    crashes: int = 0
    dies_at: str | None = None
    engine: str | None = None


MUTANTS = {}


def mutant(name, *kinds, crashes=0, dies_at=None, engine=None):
    def register(breaks):
        MUTANTS[name] = Mutant(name, frozenset(kinds), breaks, crashes, dies_at, engine)
        return breaks

    return register


def wrap(patch, owner, name, make):
    """Puts `make(real)` in the place of a function."""
    patch.setattr(owner, name, make(getattr(owner, name)))


def every(count):
    """A function that is true every so many times."""
    numbers = itertools.count(1)
    return lambda: next(numbers) % count == 0


def is_ours(topic_partition):
    return topic_partition.topic.startswith(OURS)
