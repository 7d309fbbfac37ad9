"""A flipped bit anywhere in a store, a run or a cache is noticed and named, or provably harmless."""

import shutil
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import inphase
from inphase.corpus.embed_corpus import embed_corpus
from inphase.corpus.embedding_store import EmbeddingStore
from inphase.corpus.vector_index import Index
from inphase.corpus.verify_store import verify_store
from inphase.evaluation.report import Report, write_report
from inphase.media.frame_store import FrameStore, Source, fill_store
from inphase.models import load_encoder
from inphase.models.weights import fingerprint
from inphase.pose.pose_store import POSES, PoseStore, pack, pose_format
from inphase.runs import Run
from inphase.storage.cache import Cache, Entry, append_entry, create_index
from inphase.storage.files import write_blocks
from inphase.training import train
from tests.commands import type_command
from tests.corpus.made import small_corpus, small_encoder
from tests.media.recordings import write_video
from tests.pose.people import make_pose
from tests.training.conftest import make_recipe


def made_frames(folder: Path) -> Callable[[], object]:
    films = {name: Source(write_video(folder.parent / f"{name}.mp4", count=3)) for name in "ab"}
    fill_store(folder, films, size=(8, 8))
    return lambda: [(id, clip.frames.tobytes(), clip.times.tobytes()) for id, clip in FrameStore(folder).items()]


def made_embeddings(folder: Path) -> Callable[[], object]:
    model = small_encoder(folder.parent / "model.safetensors")
    corpus = small_corpus(folder.parent / "gym", actions={"vault": 2}, frames=20)
    embed_corpus(corpus, folder, model=model, workers=0, fps=30, cache=folder.parent / "cache")
    with EmbeddingStore(folder) as store:
        Index(store, exact=1)

    def contents() -> object:
        with EmbeddingStore(folder) as store:
            rows = list(store.read(store.catalog.current()))
            made = fingerprint(load_encoder(store.encoder_file(store.model()))), store.fps(store.model())
            return [(row.id, row.action, row.embedding and row.embedding.values.tobytes()) for row in rows], made

    return contents


def made_run(folder: Path) -> Callable[[], object]:
    run = {"steps": 2, "save_every": 1}
    train(make_recipe(data={"actions": ["kick"], "videos": 2}, batch={"actions": 1}, run=run), folder)
    write_report(Report("title", (), about={"run": "1"}), Run(folder).evaluation)
    return lambda: (fingerprint(load_encoder(folder)), Run(folder).recipe)


def made_cache(folder: Path) -> Callable[[], object]:
    cache = Cache(folder)
    cache.put("key", {"values": np.arange(12.0).reshape(3, 4), "nobody": np.array("text")})

    def contents() -> object:
        found = cache.get("key")
        return None if found is None else [(name, array.tolist()) for name, array in found.items()]

    return contents


def flip(file: Path, place: int) -> None:
    content = bytearray(file.read_bytes())
    content[place // 8] ^= 1 << place % 8
    file.write_bytes(content)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(
    ("kind", "make"),
    [("frames", made_frames), ("embeddings", made_embeddings), ("run", made_run), ("cache", made_cache)],
)
def test_a_flipped_bit_is_noticed_or_harmless(
    tmp_path: Path, kind: str, make: Callable[[Path], Callable[[], object]]
) -> None:
    store, kept = tmp_path / "store", tmp_path / "kept"
    contents = make(store)
    verified = verify_store(store)
    assert (verified.kind, verified.damaged, verified.unchecked) == (kind, {}, ())
    before = contents()
    shutil.copytree(store, kept)
    rng = np.random.default_rng(0)
    noticed = harmless = 0
    for original in sorted(path for path in kept.rglob("*") if path.is_file() and path.stat().st_size):
        name = str(original.relative_to(kept))
        for place in rng.integers(0, 8 * original.stat().st_size, 12).tolist():
            flip(store / name, place)
            damaged = verify_store(store).damaged
            if damaged:
                assert name in damaged or Path(name).stem in " ".join([*damaged, *damaged.values()]), (name, damaged)
                noticed += 1
                flip(store / name, place)
            else:  # the store must give exactly what it gave
                assert contents() == before, (name, place)
                harmless += 1
                shutil.rmtree(store)
                shutil.copytree(kept, store)
    assert noticed > harmless  # most of a small file of arrays are headers of the archive, which nothing reads


def test_a_store_of_poses_and_one_of_both_is_verified(tmp_path: Path) -> None:
    pose = make_pose(4)
    kind = pose_format("blazepose")
    folder = tmp_path / "poses"
    folder.mkdir()
    create_index(folder, kind)
    digest = write_blocks(folder / "a.pose", [pack(pose).tobytes()])
    append_entry(folder, Entry("a", "source", "a.pose", len(pose), digest))
    append_entry(folder, Entry("b", "source", broken="nobody"))
    assert list(PoseStore(tmp_path)) == ["a"]
    assert (kind.format, verify_store(tmp_path).kind) == (POSES, "poses")
    flip(folder / "a.pose", 100)
    flip(folder / "index.jsonl", 8 * (folder / "index.jsonl").read_bytes().index(b"nobody"))
    damaged = verify_store(tmp_path).damaged
    assert list(damaged) == ["poses/index.jsonl", "poses/a.pose"]
    assert "line 3 is damaged" in damaged["poses/index.jsonl"]
    assert "(a): remove it and run the command" in damaged["poses/a.pose"]
    made_frames(tmp_path)
    assert verify_store(tmp_path).kind == "frames and poses"


def test_a_damaged_entry_of_a_cache_is_a_warning(tmp_path: Path) -> None:
    contents = made_cache(tmp_path)
    flip(tmp_path / "key.npz", 8 * 200)
    with pytest.warns(UserWarning, match=r"key\.npz is damaged .*it is computed again"):
        assert contents() is None
    (tmp_path / "key.npz").unlink()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert contents() is None


def test_the_command_names_damage_and_exits_with_1(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    made_cache(tmp_path / "cache")
    assert type_command(monkeypatch, "data", "verify", tmp_path / "cache") == 0
    assert "1 files" in capsys.readouterr().out
    flip(tmp_path / "cache" / "key.npz", 8 * 200)
    assert type_command(monkeypatch, "data", "verify", tmp_path / "cache") == 1
    assert "key.npz: it changed since it was written: remove it" in " ".join(capsys.readouterr().err.split())
    assert type_command(monkeypatch, "data", "verify", tmp_path) == 1
    assert "holds no store, no run and no cache" in " ".join(capsys.readouterr().err.split())
    result: Any = inphase.verify_store(tmp_path / "cache")
    (file,) = result.write(tmp_path / "out")
    assert '"whole": false' in file.read_text()
