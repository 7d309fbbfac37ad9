"""Who aligns blocks of pairs: threads of this machine, its GPU, or a Ray cluster."""

from collections import deque
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from inphase.corpus.pairs import Block, Done, Packed, PairEngine, block_distances

if TYPE_CHECKING:
    from numpy.typing import NDArray


def in_threads(*, workers: int, device: str = "cpu") -> PairEngine:
    """Align in threads: products and tables are computed outside the interpreter's lock."""

    def run(folder: Path, blocks: Sequence[Block]) -> Iterator[Done]:
        packed = Packed(folder)
        before = torch.get_num_threads()
        torch.set_num_threads(1 if workers > 1 else before)
        try:
            with ThreadPoolExecutor(max(1, workers)) as pool:
                waiting: deque[tuple[Block, Future[NDArray[np.float32]]]] = deque()
                for block in blocks:
                    if len(waiting) > 2 * workers:
                        ready, future = waiting.popleft()
                        yield ready, future.result()
                    waiting.append((block, pool.submit(block_distances, packed, block, device=device)))
                while waiting:
                    ready, future = waiting.popleft()
                    yield ready, future.result()
        finally:
            torch.set_num_threads(before)

    return run


def in_actors(address: str, *, actors: int | None = None) -> PairEngine:
    """Align on the Ray cluster at an address, whose machines see the folder."""

    def run(folder: Path, blocks: Sequence[Block]) -> Iterator[Done]:
        from inphase.corpus.cluster import connect, map_in_actors

        connect(address)
        items = [{"number": number, "ends": _ends(block)} for number, block in enumerate(blocks)]
        for result in map_in_actors(items, PairActor, folder, actors=actors):
            yield blocks[result["number"]], np.asarray(result["distances"], np.float32)

    return run


class PairActor:
    """One of the workers of a cluster."""

    def __init__(self, folder: Path) -> None:
        """Open the embeddings."""
        self._packed = Packed(folder)
        self._device = "cuda" if torch.cuda.is_available() else "cpu"
        torch.set_num_threads(1)

    def __call__(self, item: dict[str, Any]) -> dict[str, Any]:
        """Align a block."""
        first, second, third, fourth = (int(end) for end in item["ends"])
        block = Block(range(first, second), range(third, fourth))
        return {"number": item["number"], "distances": block_distances(self._packed, block, device=self._device)}


def _ends(block: Block) -> list[int]:
    return [block.rows.start, block.rows.stop, block.columns.start, block.columns.stop]
