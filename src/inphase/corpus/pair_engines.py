"""Who aligns many pairs: threads of this machine, its GPU, or a Ray cluster.

An engine is given how to begin working on a device and items of work, and yields what came of each. Items and what
comes of them are dictionaries of numbers, texts and arrays, so that they can be sent to another machine.
"""

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from itertools import islice
from typing import Any

import torch

Item = dict[str, Any]
Work = Callable[[Item], Item]
Begin = Callable[[str], Work]
PairEngine = Callable[[Begin, Iterable[Item]], Iterator[Item]]

# Items handed to Ray at a time: its scheduler and its store of objects hold them all, and what came of them.
WAVE = 1024


def in_threads(*, workers: int, device: str = "cpu") -> PairEngine:
    """Align in threads: products and tables are computed outside the interpreter's lock."""

    def run(begin: Begin, items: Iterable[Item]) -> Iterator[Item]:
        work = begin(device)
        before = torch.get_num_threads()
        torch.set_num_threads(1 if workers > 1 else before)
        try:
            with ThreadPoolExecutor(max(1, workers)) as pool:
                waiting: deque[Future[Item]] = deque()
                for item in items:
                    if len(waiting) > 2 * workers:
                        yield waiting.popleft().result()
                    waiting.append(pool.submit(work, item))
                while waiting:
                    yield waiting.popleft().result()
        finally:
            torch.set_num_threads(before)

    return run


def in_actors(address: str, *, actors: int | None = None) -> PairEngine:
    """Align on the Ray cluster at an address, whose machines see the folders; what is ready first comes first."""

    def run(begin: Begin, items: Iterable[Item]) -> Iterator[Item]:
        from inphase.corpus.cluster import connect, map_in_actors

        connect(address)
        source = iter(items)
        while wave := list(islice(source, WAVE)):
            yield from map_in_actors(wave, PairActor, begin, actors=actors)

    return run


class PairActor:
    """One of the workers of a cluster, on a GPU where there is one."""

    def __init__(self, begin: Begin) -> None:
        """Open what is aligned."""
        torch.set_num_threads(1)
        self._work = begin("cuda" if torch.cuda.is_available() else "cpu")

    def __call__(self, item: Item) -> Item:
        """Do one item."""
        return self._work(item)
