"""Epochs: every video in one group, so that of several processes one reads it.

In an epoch the videos of each action are permuted and cut into groups of at most K, of two at least. The groups of all
actions are dealt out evenly, so that neighbours are of different actions where they can be. Slot s of a run is group
s mod G of epoch s ÷ G: a pure function of seed and slot, whatever the number of processes.
"""

from collections.abc import Iterator, Sequence
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

Planned = tuple[int, NDArray[np.int64]]  # the action, and which of its videos


class Epochs:
    """The groups of every epoch, for actions of which the numbers of videos are `counts`."""

    def __init__(self, counts: Sequence[int], *, size: int, seed: int) -> None:
        """Count the groups of an epoch."""
        self._counts, self._seed = list(counts), seed
        # A last group of one video would be none: it goes with another, which for K = 2 makes one of three.
        self._cuts = [max(1, min(-(-count // size), count // 2)) for count in self._counts]
        self.groups = sum(self._cuts)
        self._plan = lru_cache(maxsize=2)(self._make_plan)  # at a boundary two are in use

    def group(self, slot: int) -> Planned:
        """Give the group of a slot."""
        epoch, place = divmod(slot, self.groups)
        return self._plan(epoch)[place]

    def instead(self, slot: int, *, world: int) -> Iterator[int]:
        """Name the slots of the same epoch that belong to the same of `world` processes, this one first.

        They stand in for a group that cannot be read: no other process' videos do.
        """
        epoch = slot // self.groups
        begin, end = epoch * self.groups, (epoch + 1) * self.groups
        yield from range(slot, end, world)
        yield from range(begin + (slot - begin) % world, slot, world)

    def _make_plan(self, epoch: int) -> list[Planned]:
        rng = np.random.default_rng([7, self._seed, epoch])  # no stream draws from a seed of this form
        planned: list[Planned] = []
        places: list[float] = []
        for action, (count, cuts) in enumerate(zip(self._counts, self._cuts, strict=True)):
            parts = np.array_split(rng.permutation(count), cuts)
            planned += [(action, part) for part in parts]
            places += ((np.arange(cuts) + rng.random()) / cuts).tolist()
        return [planned[k] for k in np.argsort(places, kind="stable")]
