"""Engines: one map over workers, for embedding jobs and for blocks of pairs alike.

An engine calls `start(device)` once in every worker; the function that comes back is applied to every item. Items and
results are pickled on their way to another process or machine, `start` is a module-level function or a `partial` of
one. To add an engine, write a class with `map` and enter it in `ENGINES`.
"""

import logging
import os
import uuid
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import BrokenExecutor, Future, ThreadPoolExecutor
from dataclasses import dataclass
from itertools import islice
from typing import Any, Protocol, TypeVar

import torch

from inphase.models.encoder import choose_device
from inphase.storage.errors import import_extra
from inphase.storage.processes import WorkerDied, map_in_processes

# Items handed to Ray at a time: its scheduler and its object store hold them all, and their results.
WAVE = 1024
# loky would replace a worker that grew by 300 MB, as one with a GPU always does; `VideoLimits` bound memory.
WORKER_VARIABLES = {"LOKY_MAX_MEMORY_LEAK_SIZE": "1e12"}
# Cores that decode for one process on a GPU: more threads would wait for its interpreter lock.
GPU_CORES = 4

Item = TypeVar("Item")
Result = TypeVar("Result")


class Engine(Protocol):
    """Maps a function over items, somewhere."""

    def map(
        self, start: Callable[[str], Callable[[Item], Result]], items: Iterable[Item]
    ) -> Iterator[Result | WorkerDied[Item]]:
        """Yield the result of every item, in any order; draw few more items than are worked on."""


@dataclass(frozen=True)
class Threads:
    """Threads of this process; with one worker, the calling thread. Results come in the order of the items.

    By default one thread per core, or two that share a GPU.
    """

    workers: int | None = None
    device: str = "auto"

    def __post_init__(self) -> None:
        """Raise if the number of workers or the device is invalid."""
        _check(self.workers, self.device)

    def map(
        self, start: Callable[[str], Callable[[Item], Result]], items: Iterable[Item]
    ) -> Iterator[Result | WorkerDied[Item]]:
        """Yield the result of every item."""
        device = choose_device(self.device)
        workers = (2 if device == "cuda" else _cores()) if self.workers is None else self.workers
        work = start(device)
        before = torch.get_num_threads()
        torch.set_num_threads(1 if workers > 1 else before)
        try:
            yield from map_in_threads(work, items, workers=workers)
        finally:
            torch.set_num_threads(before)


def map_in_threads(work: Callable[[Item], Result], items: Iterable[Item], *, workers: int) -> Iterator[Result]:
    """Apply a function to items in threads and yield the results in order; without a pool where one worker is enough.

    At most 2 · `workers` + 1 results wait to be taken. An error cancels the items that have not begun.
    """
    if workers < 2:
        yield from map(work, items)
        return
    with ThreadPoolExecutor(workers) as pool:
        waiting: deque[Future[Result]] = deque()
        try:
            for item in items:
                if len(waiting) > 2 * workers:
                    yield waiting.popleft().result()
                waiting.append(pool.submit(work, item))
            while waiting:
                yield waiting.popleft().result()
        finally:
            pool.shutdown(cancel_futures=True)


@dataclass(frozen=True)
class Processes:
    """Processes of this machine, which share its cores; 0: this process. Results come as they are finished.

    A worker that dies, as by a fault in a codec, takes no other item with it: the items under way are run again, one
    after another, and the one whose worker dies again is yielded as `WorkerDied`. By default one process per core, or
    one per `GPU_CORES` cores where they share a GPU.
    """

    workers: int | None = None
    device: str = "auto"

    def __post_init__(self) -> None:
        """Raise if the number of workers or the device is invalid."""
        _check(self.workers, self.device)

    def map(
        self, start: Callable[[str], Callable[[Item], Result]], items: Iterable[Item]
    ) -> Iterator[Result | WorkerDied[Item]]:
        """Yield the result of every item."""
        device = choose_device(self.device)
        usual = max(1, _cores() // GPU_CORES) if device == "cuda" else _cores()
        workers = usual if self.workers is None else self.workers
        if workers < 1:
            yield from Threads(workers=1, device=device).map(start, items)
            return
        pool = _ProcessPool(start, device, workers=workers)
        done = False
        try:
            yield from map_in_processes(pool, items)
            done = True
        finally:
            pool.shutdown(kill_workers=not done)


class _ProcessPool:
    """The pool of loky, which replaces workers that died."""

    def __init__(self, start: Callable[[str], Callable[[Any], Any]], device: str, *, workers: int) -> None:
        self.workers = workers
        self._loky = import_extra("loky", extra="corpus")
        self._pool: Any = None
        self._arguments = uuid.uuid4().hex, start, device, max(1, _cores() // workers)

    def submit(self, item: Any) -> "Future[Any]":
        """Run one item; a pool that broke since the last one is replaced first."""
        while True:
            self._pool = self._loky.get_reusable_executor(max_workers=self.workers, timeout=None, env=WORKER_VARIABLES)
            try:
                future: Future[Any] = self._pool.submit(_work_in_process, *self._arguments, item)
                return future
            except BrokenExecutor:  # just now
                continue

    def shutdown(self, *, kill_workers: bool) -> None:
        """End the workers, at once or when they have finished."""
        if self._pool is not None:
            self._pool.shutdown(kill_workers=kill_workers)


# The function that `start` returned in this worker process, by the map that it belongs to.
_started: dict[str, Callable[[Any], Any]] = {}


def _work_in_process(
    run: str, start: Callable[[str], Callable[[Any], Any]], device: str, threads: int, item: Any
) -> Any:
    if run not in _started:
        torch.set_num_threads(threads)
        _started.clear()
        _started[run] = start(device)
    return _started[run](item)


@dataclass(frozen=True)
class RayCluster:
    """Actors on the Ray cluster at an address, as a Ray Data job: "auto" the one of this machine, "local" a new one.

    Machines mount the corpus and the store under the same paths, as on a network file system. An item that a machine
    takes with it when it dies is run again elsewhere. By default one actor per GPU, or per core where none has one.
    """

    address: str = "auto"
    workers: int | None = None
    device: str = "auto"

    def __post_init__(self) -> None:
        """Raise if the number of workers is invalid; every machine chooses its device."""
        _check(self.workers, "auto")

    def map(
        self, start: Callable[[str], Callable[[Item], Result]], items: Iterable[Item]
    ) -> Iterator[Result | WorkerDied[Item]]:
        """Yield the result of every item, as they are finished."""
        self._connect()
        source = iter(items)
        while wave := list(islice(source, WAVE)):
            yield from self._map_wave(start, wave)

    def _connect(self) -> None:
        """Join the cluster, unless this process belongs to one."""
        ray = import_extra("ray", extra="cluster")
        if ray.is_initialized():
            return
        try:
            ray.init(address=self.address, log_to_driver=False, logging_level=logging.ERROR)
        except ConnectionError as error:
            raise ValueError(
                f"no Ray cluster at {self.address!r} ({error}): start one with `ray start --head`"
            ) from error
        except Exception as error:  # Ray raises no class of its own where it does not start
            reason = str(error).partition("\n")[0]
            raise ValueError(f"Ray did not start ({reason}): see the logs in its folder for temporary files") from error

    def _map_wave(self, start: Callable[[str], Callable[[Item], Result]], wave: list[Item]) -> Iterator[Result]:
        import ray.data
        from ray import cloudpickle

        # Importing Ray Data sets up its logging; it is silenced afterwards.
        logging.getLogger("ray.data").setLevel(logging.WARNING)
        logging.getLogger("ray.data._internal.progress").setLevel(logging.ERROR)
        ray.data.DataContext.get_current().enable_progress_bars = False
        gpus = int(ray.cluster_resources().get("GPU", 0)) if self.device != "cpu" else 0
        size = self.workers or gpus or max(1, int(ray.cluster_resources().get("CPU", 1)))
        size = min(size, len(wave))
        rows = [{"item": cloudpickle.dumps(item)} for item in wave]
        data = ray.data.from_items(rows, override_num_blocks=len(rows)).map(
            _Actor,
            fn_constructor_args=(start, "cuda" if gpus else "cpu"),
            num_cpus=1,
            num_gpus=1 if gpus else 0,
            # An actor for every GPU or core to begin with; machines may go, down to the last.
            compute=ray.data.ActorPoolStrategy(min_size=1, max_size=size, initial_size=size),
        )
        for row in data.iter_rows():
            yield cloudpickle.loads(row["result"])


class _Actor:
    """A worker of a Ray cluster."""

    def __init__(self, start: Callable[[str], Callable[[Any], Any]], device: str) -> None:
        torch.set_num_threads(1)
        self._work = start(device)

    def __call__(self, row: dict[str, bytes]) -> dict[str, bytes]:
        from ray import cloudpickle

        return {"result": cloudpickle.dumps(self._work(cloudpickle.loads(row["item"])))}


ENGINES: dict[str, Callable[..., Engine]] = {"threads": Threads, "processes": Processes, "ray": RayCluster}


def open_engine(engine: str | Engine, *, workers: int | None = None, device: str = "auto") -> Engine:
    """Make the engine of a name from `ENGINES`; return an engine that is one already."""
    if not isinstance(engine, str):
        return engine
    if engine not in ENGINES:
        raise ValueError(f"no engine {engine!r}: choose one of {', '.join(ENGINES)}")
    return ENGINES[engine](workers=workers, device=device)


def _check(workers: int | None, device: str) -> None:
    if workers is not None and workers < 0:
        raise ValueError(f"workers must be at least 0, got {workers}")
    choose_device(device)


def _cores() -> int:
    return os.cpu_count() or 1
