"""Poses and embeddings that one command has computed are found by every other, in the user's cache folder."""

from pathlib import Path
from typing import Any

import pytest

import inphase
from inphase.corpus.embed_corpus import embed_corpus
from inphase.media.frame_store import Source
from inphase.models import PoseEncoder, modality
from inphase.models.embed_videos import embed_videos, estimate_poses
from inphase.pose.pose import JOINTS13
from inphase.pose.pose_store import fill_poses
from inphase.storage.cache import Cache, default_cache_folder
from tests.corpus.made import small_encoder
from tests.media.recordings import write_video
from tests.pose.test_estimator import TOY, ToyEstimator


@pytest.fixture
def videos(tmp_path: Path) -> list[Path]:
    (tmp_path / "gym").mkdir()
    return [write_video(tmp_path / "gym" / f"{name}.mp4", count=12 + number) for number, name in enumerate("abc")]


def test_image_embeddings_are_computed_once_for_all_commands(
    tmp_path: Path, videos: list[Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    embedded: list[str] = []
    original = modality._embed_images

    def count(encoder: Any, path: Path, **settings: Any) -> Any:
        embedded.append(Path(path).name)
        return original(encoder, path, **settings)

    monkeypatch.setattr(modality, "_embed_images", count)
    encoder = small_encoder(tmp_path / "encoder.safetensors")
    inphase.align_videos(videos[:2], model=encoder)
    assert sorted(embedded) == ["a.mp4", "b.mp4"]
    inphase.search(videos[0], [tmp_path / "gym"], model=encoder)
    embed_videos(videos, model=encoder, cache=Cache(default_cache_folder()))
    embed_corpus(tmp_path / "gym", tmp_path / "store", model=encoder, workers=0, device="cpu")
    assert sorted(embedded) == ["a.mp4", "b.mp4", "c.mp4"]


def test_poses_are_estimated_once_for_all_commands(tmp_path: Path, videos: list[Path]) -> None:
    ToyEstimator.calls.clear()
    cache = Cache(default_cache_folder())
    fill_poses(tmp_path / "store", {path.stem: Source(path) for path in videos}, estimator=TOY, cache=cache)
    assert len(ToyEstimator.calls) == 3
    inphase.align_videos(videos[:2], model=PoseEncoder(joints=JOINTS13).eval(), pose_estimator=TOY)
    found, failed = estimate_poses(videos, cache=cache, pose_estimator=TOY)
    assert (len(found), failed, len(ToyEstimator.calls)) == (3, {}, 3)
