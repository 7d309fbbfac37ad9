"""Batches read ahead of their use, by threads.

Reading a frame store is copying memory, and drawing the stage is compiled: neither holds the interpreter. Threads spare
the way through shared memory that batches from other processes take, which for pictures costs more than reading them.
"""

from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import islice

from inphase.data.groups import Batch, Stream


def prefetch(
    stream: Stream, steps: Iterable[int], *, threads: int = 2, ahead: int = 4, pin: bool = False
) -> Generator[Batch, None, None]:
    """Yield the batches of `steps` in their order while `threads` read those of the next `ahead` steps.

    Without threads a batch is read when it is asked for. `pin` puts them where a CUDA device fetches them by itself:
    `group.to(device)` then returns at once.
    """
    if threads < 0 or ahead < 1:
        raise ValueError(f"need no fewer than 0 threads and 1 step ahead, got {threads=}, {ahead=}")

    def read(step: int) -> Batch:
        return stream[step].pin_memory() if pin else stream[step]

    if not threads:
        return (read(step) for step in steps)
    return _in_order(read, iter(steps), threads=threads, ahead=ahead)


def _in_order(
    read: Callable[[int], Batch], steps: Iterator[int], *, threads: int, ahead: int
) -> Generator[Batch, None, None]:
    with ThreadPoolExecutor(threads) as pool:
        try:
            waiting = deque(pool.submit(read, step) for step in islice(steps, ahead))
            while waiting:
                batch = waiting.popleft().result()
                waiting.extend(pool.submit(read, step) for step in islice(steps, 1))
                yield batch
        finally:
            # Whoever stops early does not wait for what nobody will use.
            pool.shutdown(cancel_futures=True)
