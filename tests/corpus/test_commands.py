"""The commands one after another, on videos as people have them."""

import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from inphase.corpus import store_search
from inphase.corpus.shards import ShardMergedError
from inphase.corpus.store_search import MAX_REOPENED, find_moments
from inphase.models import ImageEncoder, save_encoder
from inphase.playback import read_playback
from tests.commands import type_command as run
from tests.media.recordings import numbered, write_video

pytest.importorskip("faiss", reason="FAISS is not installed: pip install 'inphase[corpus]'")


def encoder(seed: int = 0) -> ImageEncoder:
    """Make a network of random weights that tells images apart."""
    torch.manual_seed(seed)
    sizes = {"size": (32, 32), "convolutions": (32,), "hidden": (64,), "dimension": 64}
    return ImageEncoder(context=(0,), mode="scratch", weights=None, **sizes).eval()  # type: ignore[arg-type]


@pytest.fixture(scope="module")
def gym(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Give a corpus of two actions, and a store of it."""
    root = tmp_path_factory.mktemp("place")
    save_encoder(root / "model.safetensors", encoder())
    save_encoder(root / "other.safetensors", encoder(1))
    rng = np.random.default_rng(0)
    for action, count in {"vault": 3, "beam": 2}.items():
        (root / "gym" / action).mkdir(parents=True)
        for number in range(count):
            images = [numbered(int(n)) for n in rng.permutation(4000)[:24]]
            write_video(root / "gym" / action / f"{number}.mp4", images=images)
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(root)
        assert run(patch, *["embed", "gym", "--model", "model.safetensors", "--out", "store", "--workers", "0"]) == 0
    return root


@pytest.fixture
def place(gym: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Go there; what is seen is kept beside it."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(gym / "cache"))
    monkeypatch.chdir(gym)
    return gym


def table(text: str) -> list[list[str]]:
    return [[cell.strip() for cell in line.split("│")[1:-1]] for line in text.splitlines() if line.startswith("│")]


@pytest.mark.parametrize(("merges", "status"), [(MAX_REOPENED, 0), (MAX_REOPENED + 1, 1)])
def test_a_store_whose_shards_are_merged_meanwhile_is_opened_again(
    place: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], merges: int, status: int
) -> None:
    calls: list[int] = []

    def merged(*given: Any, **settings: Any) -> Any:
        calls.append(1)
        if len(calls) <= merges:
            raise ShardMergedError("1.parquet was merged into another shard while the store was read: run this again")
        return find_moments(*given, **settings)

    monkeypatch.setattr(store_search, "find_moments", merged)
    query = ["search", place / "gym" / "vault" / "1.mp4", "--in", "store", "--at", "0.4", "--out", "merged"]
    assert run(monkeypatch, *query) == status
    assert len(calls) == MAX_REOPENED + 1
    assert ("was merged into another shard" in capsys.readouterr().err) == (status == 1)


def test_moments_and_videos_are_found_in_a_store(
    place: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    capsys.readouterr()
    shutil.copy(place / "gym" / "vault" / "1.mp4", place / "1.mp4")
    query = ["search", "1.mp4", "--in", "store", "--top", "2", "--out", "found"]
    assert run(monkeypatch, *query, "--at", "0.4") == 0
    out = capsys.readouterr().out
    assert "120 frames, all compared" in out
    assert table(out)[0] == ["1", "gym/vault/1.mp4", "0.40", "1.000"]
    assert read_playback(place / "found").results[0].hits[0].second == pytest.approx(0.4)
    assert run(monkeypatch, *query) == 0
    out = capsys.readouterr().out
    assert table(out)[0][:2] == ["1", "gym/vault/1.mp4"]
    assert read_playback(place / "found").tracks[1].name == "1"
    # A video of the store does not find itself.
    for moment in ([], ["--at", "0.4"]):
        assert run(monkeypatch, "search", "gym/vault/1.mp4", *query[2:], *moment) == 0
        found = [row[1] for row in table(capsys.readouterr().out)]
        assert len(found) == 2
        assert "gym/vault/1.mp4" not in found
    assert run(monkeypatch, *query, "--action", "beam") == 0
    out = capsys.readouterr().out
    assert {row[1] for row in table(out)} == {"gym/beam/0.mp4", "gym/beam/1.mp4"}
    # A file that went after it was embedded is found still, and reported as missing.
    shutil.move(place / "gym" / "beam" / "0.mp4", place / "away.mp4")
    try:
        assert run(monkeypatch, *query, "--action", "beam") == 0
    finally:
        shutil.move(place / "away.mp4", place / "gym" / "beam" / "0.mp4")
    captured = capsys.readouterr()
    assert "gym/beam/0.mp4: not shown: its file is not here" in captured.err
    assert {row[1] for row in table(captured.out)} == {"gym/beam/0.mp4", "gym/beam/1.mp4"}


@pytest.mark.parametrize(
    ("words", "printed"),
    [
        (["search", "gym/vault/1.mp4", "--in", "store", "--action", "swim"], "no video in store has the action 'swim'"),
        (
            ["search", "gym/vault/1.mp4", "--in", "gym", "--action", "beam"],
            "action selects videos of a store only",
        ),
        (["search", "gym/vault/1.mp4", "--in", "store", "--model", "other.safetensors"], "another model than"),
        (["align-all", "gym"], "gym is not a store of embeddings: make one with `inphase embed CORPUS --out STORE`"),
        (["align-all", "new"], "make one with `inphase embed CORPUS --out new`"),
        (["align-all", "store", "--reference", "0.mp4"], "name which action"),
        (["align-all", "store", "--device", "gpu"], "device must be auto, cpu or cuda"),
        (["align-all", "store", "--engine", "gpu"], "no engine 'gpu': choose one of threads, processes, ray"),
        (["embed", "store/models", "--model", "model.safetensors", "--out", "x"], "no videos in store/models"),
        (["embed", "gym", "--model", "model.safetensors", "--out", "gym"], "holds other files and is not a store"),
        (
            ["embed", "gym", "--model", "model.safetensors", "--out", "y", "--workers", "-1"],
            "workers must be at least 0, got -1",
        ),
    ],
)
def test_a_mistake_is_one_line_that_says_what_to_do(
    place: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], words: list[str], printed: str
) -> None:
    assert run(monkeypatch, *words) == 1
    error = capsys.readouterr().err
    assert printed in error.replace("\n", " ")
    assert "Traceback" not in error
