from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from inphase.data import stage_videos
from inphase.data.frame_source import FrameSource, open_frame_source
from inphase.data.video import Video
from inphase.evaluation import embed_videos
from inphase.evaluation.embedded_videos import untrained
from inphase.evaluation.evaluate import validate
from inphase.models import Encoder, ImageEncoder, load_encoder
from inphase.runs import CachedFeatures
from inphase.training import train
from inphase.training.metrics import read_metrics
from tests.commands import type_command
from tests.training.conftest import make_recipe, train_interrupted

SMALL = {"size": (32, 32), "convolutions": (4,), "hidden": ()}


@pytest.fixture
def frame_source() -> FrameSource:
    videos = stage_videos.load(split="train", actions=["squat"], videos=2, size=32)
    return open_frame_source(ImageEncoder(**SMALL), videos)  # type: ignore[arg-type]


def test_features_are_those_of_the_network_computed_once(tmp_path: Path, frame_source: FrameSource) -> None:
    encoder = ImageEncoder(**SMALL).eval()  # type: ignore[arg-type]
    features = CachedFeatures(encoder, frame_source, folder=tmp_path, batch=7)
    video, frames = frame_source.videos[0], np.array([3, 10, 11])
    found, times = features(video, frames)
    images, seconds = frame_source.read(video, frames)
    with torch.no_grad():
        expected = encoder.features(encoder.prepare(torch.from_numpy(images)))
    np.testing.assert_allclose(found, expected, atol=2e-2, rtol=2e-3)  # half precision
    np.testing.assert_array_equal(times, seconds)

    def refuse(video: Video, frames: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        raise AssertionError("looked at twice")

    again = CachedFeatures(encoder, FrameSource(frame_source.videos, refuse, frame_source.frame_count), folder=tmp_path)
    np.testing.assert_array_equal(again(video, frames)[0], found)
    with torch.no_grad():
        next(encoder.backbone.parameters()).add_(1)
    with pytest.raises(AssertionError, match="looked at twice"):
        CachedFeatures(encoder, FrameSource(frame_source.videos, refuse, frame_source.frame_count), folder=tmp_path)(
            video, frames
        )


def test_drafts_of_killed_writers_are_removed_when_nothing_is_left_to_compute(
    tmp_path: Path, frame_source: FrameSource
) -> None:
    features = CachedFeatures(ImageEncoder(**SMALL).eval(), frame_source, folder=tmp_path)  # type: ignore[arg-type]
    features.compute_all()
    (tmp_path / ".a.times.npy.inphase-draft").mkdir()
    features.compute_all()
    assert not [file.name for file in tmp_path.iterdir() if file.name.endswith("inphase-draft")]


def test_what_is_embedded_from_kept_features_is_what_is_embedded_from_images(
    tmp_path: Path, frame_source: FrameSource
) -> None:
    encoder = ImageEncoder(**SMALL).eval()  # type: ignore[arg-type]
    kept = CachedFeatures(encoder, frame_source, folder=tmp_path).source
    assert (kept.precomputed, kept.source) == (True, f"{frame_source.source} as features")
    plain, precomputed = (
        embed_videos(encoder, seen.videos, read=seen.read, frame_count=seen.frame_count, precomputed=seen.precomputed)
        for seen in (frame_source, kept)
    )
    assert [item.video.id for item in precomputed] == [item.video.id for item in plain]
    for ours, theirs in zip(precomputed, plain, strict=True):
        np.testing.assert_allclose(ours.values, theirs.values, atol=2e-3)  # half precision
        np.testing.assert_array_equal(ours.embedding.times, theirs.embedding.times)


def test_evaluation_computes_features_that_training_has_not_and_once(
    out: Path, computed: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    recipe = make_recipe(data={"actions": ["squat", "kick"], "videos": 2, "size": 32}, run={"steps": 2})
    train(replace(recipe, encoder={"name": "image", **SMALL}), out)
    computed.clear()
    assert type_command(monkeypatch, "evaluate", str(out), "--tasks", "kendall_tau", "phase_progression") == 0
    assert sorted(computed) == [f"stage-plain-0-test-{action}-{n:04d}" for action in ("kick", "squat") for n in (0, 1)]
    measured = (out / "evaluation" / "report.json").read_text()
    assert "untrained" in measured


@pytest.mark.slow
def test_a_head_on_kept_motion_trains_and_goes_on_as_if_never_interrupted(out: Path, tmp_path: Path) -> None:
    recipe = replace(
        make_recipe(data={"actions": ["squat", "kick"], "videos": 2, "size": 32}, run={"steps": 6}),
        encoder={"name": "motion", "size": [32, 32], "hidden": [8], "dimension": 8, "dropout": 0.3},
    )
    kept = tmp_path / "features"
    train(recipe, tmp_path / "whole", features=kept)
    assert np.load(next(kept.glob("*[0-9a-f].npy")), mmap_mode="r").shape[1:] == (112, 3, 3)
    train_interrupted(recipe, out, step=3, features=kept)
    train(recipe, out, features=kept)
    found, whole = (load_encoder(folder).state_dict() for folder in (out, tmp_path / "whole"))
    for name, value in whole.items():
        assert torch.equal(found[name], value), name
    untouched = untrained(load_encoder(out)).state_dict()
    same = {name for name, value in untouched.items() if torch.equal(value, whole[name])}
    assert {name for name in whole if name.startswith("backbone.")} <= same
    assert "head.1.weight" not in same


def test_the_embedder_of_a_frozen_network_trains_on_features(out: Path) -> None:
    recipe = make_recipe(
        data={"actions": ["squat", "kick"], "videos": 4, "size": 32},
        optimizer={"lr": 1e-3},
        run={"steps": 4},
    )
    recipe = replace(recipe, encoder={"name": "image", **SMALL}, validation={"fraction": 0.5, "every": 2})
    reported: list[tuple[str, int, int]] = []
    watched: list[bool] = []

    def watch_tau(encoder: Encoder, frame_source: FrameSource) -> dict[str, float]:
        watched.append(frame_source.precomputed)
        return validate(encoder, frame_source)

    train(recipe, out, progress=lambda *report: reported.append(report), validate=watch_tau)
    assert reported[:4] == [("computing features", done, 4) for done in range(1, 5)]
    assert reported[-1] == ("training", 4, 4)
    assert watched == [True, True]  # what is watched is looked at once as well
    assert len(list((out / "features").glob("*.times.npy"))) == 8
    assert read_metrics(out)[-1]["step"] == 4
    trained = load_encoder(out)
    fresh = ImageEncoder(**SMALL)  # type: ignore[arg-type]
    state = trained.state_dict()
    for name, value in fresh.state_dict().items():
        if name.startswith("backbone."):
            assert torch.equal(state[name], value), name
