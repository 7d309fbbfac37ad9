"""Commands to kill, on inputs that are as small as they can be, and the results that must survive."""

import hashlib
import json
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from safetensors.numpy import load_file

from inphase.corpus.embedding_store import EmbeddingStore
from inphase.data import stage_videos
from inphase.media.frame_store import FrameStore
from inphase.pose.pose_store import PoseStore
from tests.corpus.made import small_corpus, small_encoder
from tests.media.recordings import write_video
from tests.pose.test_estimator import TOY, write_phases
from tests.training.conftest import make_recipe

SMALL = ("run.steps=6", "run.save_every=2", "encoder.size=[32, 32]", "encoder.hidden=[8]", "batch.actions=1",
         "batch.frames=6", "run.accelerator=cpu")  # fmt: skip


@dataclass(frozen=True)
class Command:
    """A command, the files that it needs, and a summary of its results that any two whole runs share.

    `heavy` commands start interpreters of their own, which takes seconds: they are left out of short runs.
    """

    words: tuple[str, ...]
    prepare: Callable[[Path], None]
    summarize: Callable[[Path], dict[str, Any]]
    heavy: bool = False


def digest(*arrays: Any) -> str:
    """Hash arrays."""
    total = hashlib.sha256()
    for array in arrays:
        total.update(np.ascontiguousarray(array).tobytes())
    return total.hexdigest()[:16]


def _tensors(file: Path) -> str:
    found = load_file(file)
    return digest(*(found[name] for name in sorted(found)))


def _bytes(folder: Path, files: Iterable[Path]) -> dict[str, str]:
    return {str(file.relative_to(folder)): hashlib.sha256(file.read_bytes()).hexdigest()[:16] for file in files}


def _write_recipe(folder: Path) -> None:
    recipe = make_recipe(run={"steps": 8, "save_every": 3, "log_every": 2, "accelerator": "cpu"})
    (folder / "recipe.toml").write_text(recipe.to_toml(), encoding="utf-8")


def _summarize_run(folder: Path) -> dict[str, Any]:
    run = folder / "run"
    rows = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    weights = {name: _tensors(run / name) for name in ("encoder.safetensors", "state.safetensors")}
    return {
        **weights,
        "recipe": (run / "recipe.toml").read_text(),
        "losses": [[row["step"], row["loss"]] for row in rows],
    }


def _write_kicks(folder: Path) -> None:
    stage_videos.write(folder / "stage", split="train", actions=["kick"], videos=2, level="plain", size=32)
    (folder / "kicks").mkdir()
    for number, film in enumerate(sorted((folder / "stage").rglob("*.mp4"))):
        film.rename(folder / "kicks" / f"{number}.mp4")


def _summarize_fit(folder: Path) -> dict[str, Any]:
    report = json.loads((folder / "run" / "evaluation" / "report.json").read_text())
    return {**_summarize_run(folder), "scores": report.get("tables", report)}


def _write_videos(folder: Path) -> None:
    small_corpus(folder / "gym", actions={"vault": 2, "beam": 1}, frames=6)


def _summarize_frames(folder: Path) -> dict[str, Any]:
    store = FrameStore(folder / "store")
    return {name: digest(store[name].frames, store[name].times) for name in sorted(store)}


def _write_people(folder: Path) -> None:
    (folder / "gym" / "wave").mkdir(parents=True)
    for number in range(3):
        write_phases(folder / "gym" / "wave" / f"{number}.mp4", np.linspace(0, 1, 6 + number))
    write_video(folder / "gym" / "wave" / "dark.mp4", images=[np.zeros((48, 64, 3), np.uint8)] * 5)


def _summarize_poses(folder: Path) -> dict[str, Any]:
    store = PoseStore(folder / "store")
    return {name: digest(store[name].keypoints, store[name].times) for name in sorted(store)}


def _write_corpus(folder: Path) -> None:
    small_encoder(folder / "model.safetensors")
    small_corpus(folder / "gym", actions={"vault": 3, "beam": 2})
    (folder / "gym" / "beam" / "broken.mp4").write_bytes(b"no video at all")


def _summarize_store(folder: Path) -> dict[str, Any]:
    found: dict[str, Any] = {}
    with EmbeddingStore(folder / "store") as store:
        for fact in store.catalog.current(embedded=False):
            if fact.id in found:
                raise AssertionError(f"{fact.id} is there twice")
            found[fact.id] = fact.reason
        for fact in store.catalog.current():
            (row,) = store.read([fact])
            assert row.embedding is not None
            found[fact.id] = digest(row.embedding.values, row.embedding.times)
    return dict(sorted(found.items()))


def _write_pair(folder: Path) -> None:
    small_encoder(folder / "model.safetensors")
    write_video(folder / "a.mp4", count=12)
    write_video(folder / "b.mp4", count=16)


def _summarize_pair(folder: Path) -> dict[str, Any]:
    out = folder / "out"
    playback = json.loads((out / "playback.json").read_text())
    arrays = (file for file in sorted(out.rglob("*")) if file.is_file() and file.suffix in (".csv", ".bin", ".png"))
    return {"tracks": [track["name"] for track in playback["tracks"]], **_bytes(out, arrays)}


def _write_store(folder: Path) -> None:
    from inphase.corpus.embed_corpus import embed_corpus

    _write_corpus(folder)
    embed_corpus(folder / "gym", folder / "store", model=folder / "model.safetensors", workers=0, device="cpu")


def _summarize_aligned(folder: Path) -> dict[str, Any]:
    import pyarrow.parquet as pq

    out = folder / "out"
    rows = {str(file.relative_to(out)): pq.read_table(file).to_pylist() for file in sorted(out.rglob("*.parquet"))}
    tables = _bytes(out, [*sorted(out.rglob("*.csv")), *sorted(out.rglob("*.npy"))])
    return {**tables, "rows": json.loads(json.dumps(rows, default=str))}


_EMBED = ("embed", "gym", "--model", "model.safetensors", "--out", "store", "--shard-videos", "1", "--device", "cpu")
_FIT = tuple(word for change in SMALL for word in ("--set", change))

COMMANDS = {
    "train": Command(("train", "recipe.toml", "--out", "run"), _write_recipe, _summarize_run),
    "fit": Command(
        ("fit", "kicks", "--out", "run", "--modality", "image", "--workers", "0", *_FIT), _write_kicks, _summarize_fit
    ),
    "data cache": Command(
        ("data", "cache", "folder", "gym", "store", "--size", "16", "16"), _write_videos, _summarize_frames
    ),
    "data pose": Command(
        ("data", "pose", "folder", "gym", "store", "--estimator", TOY), _write_people, _summarize_poses
    ),
    "embed": Command((*_EMBED, "--workers", "0"), _write_corpus, _summarize_store),
    "embed, 2 workers": Command((*_EMBED, "--workers", "2"), _write_corpus, _summarize_store, heavy=True),
    "embed, Ray": Command((*_EMBED, "--ray", "local", "--workers", "1"), _write_corpus, _summarize_store, heavy=True),
    "align": Command(
        ("align", "a.mp4", "b.mp4", "--model", "model.safetensors", "--out", "out", "--height", "32"),
        _write_pair,
        _summarize_pair,
    ),
    "align-all": Command(
        ("align-all", "store", "--out", "out", "--device", "cpu", "--workers", "1"), _write_store, _summarize_aligned
    ),
}
