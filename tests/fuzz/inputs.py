"""Commands and the input files to damage, each as small as it can be."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from random import Random

import numpy as np

from tests.corpus.made import small_corpus, small_encoder
from tests.fuzz.mutations import (
    damage_bytes,
    damage_csv,
    damage_json,
    damage_lines,
    damage_recipe,
    damage_safetensors,
)
from tests.media.recordings import clicks, write_video
from tests.training.conftest import make_recipe

Damage = Callable[[bytes, Random], bytes]
_MODEL = ("--model", "model.safetensors")


@dataclass(frozen=True)
class Target:
    """Files to damage (patterns below a prepared folder), and the commands that read them.

    `check` returns what is wrong after a command succeeded, such as results of undamaged files that are missing.
    """

    files: dict[str, Damage]
    commands: tuple[tuple[str, ...], ...]
    prepare: Callable[[Path], None]
    check: Callable[[Path], str] | None = None


def _write_videos(folder: Path) -> None:
    small_encoder(folder / "model.safetensors")
    (folder / "gym").mkdir()
    write_video(folder / "gym" / "a.mp4", count=8)
    sound = clicks([0.1], length=0.4)
    write_video(folder / "gym" / "bad.mp4", count=9, sound=sound, options={"g": "4", "bf": "2"}, faststart=True)
    write_video(folder / "gym" / "bad.mkv", count=9, options={"g": "4"})
    write_video(folder / "gym" / "bad.avi", count=9, codec="mjpeg", pixels="yuvj420p")


def _require_whole_video(folder: Path) -> str:
    """The video that is not damaged is embedded as ever."""
    from inphase.corpus.embedding_store import EmbeddingStore

    if not (folder / "store").exists():
        return ""
    with EmbeddingStore(folder / "store") as store:
        fact = store.catalog.find("gym/a.mp4")
        if fact is None or fact.reason:
            return f"gym/a.mp4 was spoilt: {fact and fact.reason}"
        (row,) = store.read([fact])
    if row.embedding is None or len(row.embedding.values) != 8 or not np.isfinite(row.embedding.values).all():
        return "gym/a.mp4 has other embeddings"
    return ""


def _write_playback(folder: Path) -> None:
    from tests.viewer.conftest import write_pair

    write_pair(folder / "pair")


def _write_recipe(folder: Path) -> None:
    recipe = make_recipe(run={"steps": 2, "save_every": 1, "log_every": 1, "accelerator": "cpu"})
    (folder / "recipe.toml").write_text(recipe.to_toml(), encoding="utf-8")


def _write_run(folder: Path) -> None:
    from inphase.training import train

    recipe = make_recipe(run={"steps": 2, "save_every": 1, "log_every": 1, "accelerator": "cpu"})
    train(recipe, folder / "run")
    longer = make_recipe(run={"steps": 3, "save_every": 1, "log_every": 1, "accelerator": "cpu"})
    (folder / "recipe.toml").write_text(longer.to_toml(), encoding="utf-8")


def _write_model(folder: Path) -> None:
    small_encoder(folder / "model.safetensors")
    write_video(folder / "a.mp4", count=6)
    write_video(folder / "b.mp4", count=7)


def _write_store(folder: Path) -> None:
    from inphase.corpus.embed_corpus import embed_corpus

    small_encoder(folder / "model.safetensors")
    small_corpus(folder / "gym", actions={"vault": 3})
    embed_corpus(folder / "gym", folder / "store", model=folder / "model.safetensors", workers=0, shard_videos=1)


def _write_frames(folder: Path) -> None:
    from inphase.media.frame_store import Source, fill_store

    write_video(folder / "a.mp4", count=6)
    fill_store(folder / "store", {"a": Source(folder / "a.mp4")}, size=(16, 16))
    small_corpus(folder / "gym", actions={"vault": 2}, frames=6)


def _write_tables(folder: Path) -> None:
    _write_model(folder)
    (folder / "table.csv").write_text("path,action,split\na.mp4,vault,train\nb.mp4,vault,test\n")
    (folder / "labels.csv").write_text("start,end,label\n0,0.1,up\n0.1,0.2,down\n")


_EMBED = ("embed", "gym", *_MODEL, "--out", "store", "--workers", "0", "--device", "cpu", "--shard-videos", "2")
_CACHE = ("data", "cache", "folder", "gym", "store", "--size", "16", "16")
_TRANSFER = ("transfer", "a.mp4", "labels.csv", "b.mp4", *_MODEL, "--out", "out")

TARGETS: dict[str, Target] = {
    "video in a corpus": Target(
        {"gym/bad.*": damage_bytes}, (_EMBED, ("data", "check", "folder", "gym")), _write_videos, _require_whole_video
    ),
    "video": Target(
        {"gym/bad.*": damage_bytes},
        tuple(
            ("align", "gym/a.mp4", f"gym/bad.{suffix}", *_MODEL, "--out", "out", "--height", "32")
            for suffix in ("mp4", "mkv", "avi")
        ),
        _write_videos,
    ),
    "playback": Target({"pair/playback.json": damage_json}, (("export", "pair", "--out", "page"),), _write_playback),
    "playback arrays": Target({"pair/arrays/*": damage_bytes}, (("export", "pair", "--out", "page"),), _write_playback),
    "recipe": Target({"recipe.toml": damage_recipe}, (("train", "recipe.toml", "--out", "run"),), _write_recipe),
    "run": Target(
        {
            "run/state.safetensors": damage_safetensors,
            "run/encoder.safetensors": damage_safetensors,
            "run/metrics.jsonl": damage_lines,
            "run/recipe.toml": damage_recipe,
        },
        (("train", "recipe.toml", "--out", "run"), ("evaluate", "run", "--tasks", "health")),
        _write_run,
    ),
    "model": Target(
        {"model.safetensors": damage_safetensors},
        (("align", "a.mp4", "b.mp4", *_MODEL, "--out", "out", "--height", "32"),),
        _write_model,
    ),
    "store": Target(
        {"store/**/*": damage_bytes, "store/*.json": damage_json},
        (
            ("search", "gym/vault/00.mp4", "--in", "store", "--at", "0.1", "--out", "found"),
            ("align-all", "store", "--out", "out", "--device", "cpu", "--workers", "1"),
            _EMBED,
        ),
        _write_store,
    ),
    "frame store": Target(
        {"store/*": damage_bytes, "store/index.jsonl": damage_lines},
        # In a process of its own, as by default, a case takes ten times as long.
        ((*_CACHE, "--workers", "0"), (*_CACHE, "--workers", "0"), (*_CACHE, "--workers", "0"), _CACHE),
        _write_frames,
    ),
    "table": Target(
        {"table.csv": damage_csv},
        (("embed", "table.csv", *_EMBED[2:]), ("data", "check", "folder", ".")),
        _write_tables,
    ),
    "labels": Target({"labels.csv": damage_csv}, (_TRANSFER,), _write_tables),
}
