import os
import sys
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from inphase.corpus.align_corpus import align_corpus
from inphase.corpus.embed_corpus import embed_corpus
from inphase.corpus.embedding_store import EmbeddingStore
from inphase.corpus.engines import ENGINES, Engine, Processes, Threads, map_in_threads, open_engine
from inphase.storage.errors import MissingExtraError
from inphase.storage.processes import WorkerDied
from tests.commands import type_command as run
from tests.corpus.made import small_corpus, small_encoder

pytestmark = pytest.mark.slow


class Backwards:
    """A toy engine: it runs all items in this thread, the last one first."""

    def __init__(self, *, workers: int | None, device: str) -> None:
        self.ran = 0

    def map(self, start: Callable[[str], Callable[[Any], Any]], items: Iterable[Any]) -> Iterator[Any]:
        work = start("cpu")
        for item in reversed(list(items)):
            self.ran += 1
            yield work(item)


def test_an_engine_from_outside_embeds_and_aligns(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model = small_encoder(tmp_path / "model.safetensors")
    corpus = small_corpus(tmp_path / "gym", actions={"vault": 5})
    engine = Backwards(workers=None, device="cpu")
    result = embed_corpus(corpus, tmp_path / "store", model=model, engine=engine, shard_videos=2)
    assert (result.done, result.failed, engine.ran) == (5, 0, 3)
    aligned = align_corpus(tmp_path / "store", tmp_path / "out", engine=engine)
    assert engine.ran == 3 + 1 + 3  # a block of pairs, a window of each shard
    here = align_corpus(tmp_path / "store", tmp_path / "here", workers=1, device="cpu")
    assert aligned.actions[0].reference == here.actions[0].reference
    one, other = (np.load(tmp_path / name / "vault" / "distances.npy") for name in ("out", "here"))
    np.testing.assert_array_equal(one, other)
    # By its name, one line in the registry is enough for library and command.
    monkeypatch.setitem(ENGINES, "backwards", Backwards)
    assert isinstance(open_engine("backwards"), Backwards)
    words = ["align-all", tmp_path / "store", "--out", tmp_path / "named", "--engine", "backwards"]
    assert run(monkeypatch, *words) == 0
    np.testing.assert_array_equal(np.load(tmp_path / "named" / "vault" / "distances.npy"), one)


def square(number: int, *, device: str) -> tuple[int, str]:
    return number * number, device


def start_squares(device: str) -> Callable[[int], tuple[int, str]]:
    return partial(square, device=device)


@pytest.mark.parametrize("engine", [Threads(1, "cpu"), Threads(3, "cpu"), Processes(0, "cpu"), Processes(2, "cpu")])
def test_engines_map_every_item_once(engine: Engine) -> None:
    found = list(engine.map(start_squares, range(20)))
    assert sorted(each for each in found if not isinstance(each, WorkerDied)) == [(n * n, "cpu") for n in range(20)]


def start_deadly(device: str) -> Callable[[int], int]:
    def work(number: int) -> int:
        if number == 3:
            os._exit(11)
        return number

    return work


def test_an_item_that_kills_its_worker_is_named_and_no_other_is_lost() -> None:
    found = list(Processes(1, "cpu").map(start_deadly, range(6)))
    assert [each.item for each in found if isinstance(each, WorkerDied)] == [3]
    assert sorted(each for each in found if not isinstance(each, WorkerDied)) == [0, 1, 2, 4, 5]


def start_failing(device: str) -> Callable[[int], int]:
    raise ValueError("the encoder is gone")


@pytest.mark.parametrize("engine", [Threads(2, "cpu"), Processes(1, "cpu")])
def test_an_error_of_a_worker_reaches_the_caller(engine: Engine) -> None:
    with pytest.raises(ValueError, match="the encoder is gone"):
        list(engine.map(start_failing, range(3)))


def test_few_items_are_drawn_ahead() -> None:
    drawn: list[int] = []

    def items() -> Iterator[int]:
        for number in range(100):
            drawn.append(number)
            yield number

    results = map_in_threads(lambda number: number, items(), workers=2)
    assert [next(results) for _ in range(3)] == [0, 1, 2]
    assert len(drawn) <= 3 + 2 * 2 + 1
    results.close()  # type: ignore[attr-defined]


def test_an_engine_that_cannot_be_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ValueError, match="no engine 'gpu': choose one of threads, processes, ray"):
        open_engine("gpu")
    with pytest.raises(ValueError, match="workers must be at least 0, got -1"):
        open_engine("threads", workers=-1)
    with pytest.raises(ValueError, match="device must be auto, cpu or cuda, got 'tpu'"):
        open_engine("processes", device="tpu")


@pytest.mark.parametrize(("name", "extra"), [("loky", "corpus"), ("pyarrow", "corpus"), ("ray", "cluster")])
def test_a_missing_extra_is_named_in_a_line(
    name: str, extra: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: dict[str, Callable[[], object]] = {
        "loky": lambda: list(open_engine("processes", workers=1).map(start_squares, [1])),
        "pyarrow": lambda: EmbeddingStore(tmp_path, create=True),
        "ray": lambda: list(open_engine("ray").map(start_squares, [1])),
    }
    monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(MissingExtraError, match=rf"{name} is not installed: pip install 'inphase\[{extra}\]'"):
        calls[name]()


def test_a_cluster_that_does_not_start_is_an_error_of_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(**_: object) -> None:
        raise Exception("The current node timed out during startup.\nMore of it.")

    monkeypatch.setitem(sys.modules, "ray", SimpleNamespace(is_initialized=lambda: False, init=fail))
    with pytest.raises(ValueError, match=r"^Ray did not start \(The current node timed out during startup\.\): see"):
        list(open_engine("ray").map(start_squares, [1]))
