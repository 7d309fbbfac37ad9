"""Training on images and sound: two encoders, one loss, the same loop."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from torch import Tensor

from inphase.data.stream import Batch
from inphase.losses import GTA
from inphase.models import AudioEncoder, PoseEncoder, load_encoder
from inphase.training import Recipe, read_recipe, train
from inphase.training.build import build_encoder_with_loss, build_stream, load_frame_sources
from inphase.training.metrics import read_metrics
from inphase.training.step import EncoderWithLoss
from tests.media.recordings import write_video
from tests.training.conftest import make_recipe, train_interrupted

pytestmark = pytest.mark.slow

AUDIO = {"convolutions": [[2], [4]], "norm": True, "hidden": [8], "dimension": 8}


def recipe(**changes: dict[str, object]) -> Recipe:
    made = make_recipe(**changes)
    batch = {"actions": 2, "frames": 6, "clips": 2} | dict(changes.get("batch", {}))
    return replace(made, audio=AUDIO, batch=batch)


def weights(folder: Path) -> dict[str, Tensor]:
    both = ("encoder.safetensors", "audio.safetensors")
    return {f"{file} {name}": value for file in both for name, value in load_file(folder / file).items()}


def test_both_encoders_train_and_are_kept(out: Path) -> None:
    made = recipe(run={"steps": 6})
    train(made, out)
    video_encoder, audio_encoder = load_encoder(out), load_encoder(out / "audio.safetensors")
    assert (video_encoder.modality, audio_encoder.modality) == ("pose", "audio")
    assert read_recipe(out / "recipe.toml") == made
    torch.manual_seed(made.run.get("seed", 0))
    fresh = build_encoder_with_loss(made)
    assert fresh.audio is not None
    for before, after in ((fresh.encoder, video_encoder), (fresh.audio, audio_encoder)):
        changed = [not torch.equal(a, b) for a, b in zip(before.parameters(), after.parameters(), strict=True)]
        assert sum(changed) > len(changed) / 2
    assert all(np.isfinite(row["loss"]) for row in read_metrics(out))


def test_training_lowers_the_loss(out: Path) -> None:
    train(recipe(run={"steps": 60}, batch={"clips": 1}), out)
    losses = [row["align"] for row in read_metrics(out)]
    assert sum(losses[-10:]) < 0.9 * sum(losses[:10])


def test_an_interrupted_run_ends_as_an_uninterrupted_one(out: Path, tmp_path: Path) -> None:
    made = recipe(augmentation={"flip": 0.5, "jitter": 0.01}, run={"steps": 8, "threads": 3})
    train(made, tmp_path / "whole")
    train_interrupted(made, out, step=5)
    train(replace(made, run={**made.run, "threads": 1}), out)
    one, other = weights(out), weights(tmp_path / "whole")
    assert one.keys() == other.keys()
    assert all(torch.equal(one[name], other[name]) for name in one)


def test_sounds_of_all_groups_are_embedded_as_each_alone() -> None:
    method = EncoderWithLoss(
        PoseEncoder(hidden=(8,), dimension=8).eval(),
        GTA(variant="released"),
        audio=AudioEncoder(convolutions=[[2], [2]], hidden=(8,), dimension=8),
    ).eval()
    groups = stream(recipe(batch={"actions": 3}), method)[0].groups
    together = method(Batch(0, groups).to(torch.device("cpu")))
    alone = [method(Batch(0, (group,)).to(torch.device("cpu")))["loss"] for group in groups]
    torch.testing.assert_close(together["loss"], torch.stack(alone).mean())
    assert {int(group.lengths[1]) for group in groups} != {int(groups[0].lengths[0])}


def stream(made: Recipe, method: EncoderWithLoss) -> Any:
    frame_source = load_frame_sources(made, method.encoder).train
    return build_stream(made, method, frame_source, seed=0, rank=0, world=1)


def test_a_frozen_network_s_features_are_kept_beside_sounds(out: Path) -> None:
    encoder = {"name": "image", "size": [32, 32], "convolutions": [4], "hidden": [8], "dimension": 8}
    made = replace(recipe(data={"size": 32, "videos": 3}, run={"steps": 2}), encoder=encoder)
    train(made, out)
    video_encoder = load_encoder(out)
    assert video_encoder.modality == "image"
    assert len(list((out / "features").glob("*.times.npy"))) == len(
        load_frame_sources(made, video_encoder).train.videos
    )


def test_what_cannot_be_trained_together_is_refused(out: Path) -> None:
    with pytest.raises(ValueError, match="dimensions differ: 8 and 16"):
        train(replace(recipe(), audio={**AUDIO, "dimension": 16}), out / "a")
    with pytest.raises(ValueError, match="samples frames at random: choose a loss that allows it, such as gta"):
        train(replace(recipe(), loss={"name": "tcn"}), out / "b")
    with pytest.raises(ValueError, match=r"\[batch\] does not take 'videos'"):
        train(recipe(batch={"videos": 2}), out / "c")


def test_a_table_audio_without_entries_is_written_and_read_back(tmp_path: Path) -> None:
    file = tmp_path / "recipe.toml"
    file.write_text(replace(recipe(), audio={}).to_toml())
    assert read_recipe(file).audio == {}
    assert read_recipe("vggsound_cannon").audio == {}


def test_the_recipe_of_the_cannon_runs_on_a_miniature(tmp_path: Path, out: Path) -> None:
    root = tmp_path / "VGGSound"
    (root / "videos").mkdir(parents=True)
    names = [f"clip{number:07}" for number in range(4)]
    noise = np.random.default_rng(0).normal(0, 0.1, 3 * 44100).astype(np.float32)
    for name in names[:3]:  # the last is no longer to be had
        write_video(root / "videos" / f"{name}_000010.mp4", count=30, rate=10, sound=noise)
    (root / "vggsound.csv").write_text("".join(f"{name},10,firing cannon,train\n" for name in names))
    shipped = read_recipe("vggsound_cannon", changes=[f"data.root={root}"])
    narrow = {"backbone": "efficientnet_lite0", "mode": "scratch", "weights": None, "size": [32, 32]}
    small = replace(
        shipped,
        encoder={**shipped.encoder, **narrow, "convolutions": [4], "hidden": [8], "dimension": 8},
        audio=AUDIO,
        batch={**shipped.batch, "actions": 1, "frames": 4},
        validation={"fraction": 0.0},
        run={"steps": 2, "accelerator": "cpu"},
    )
    with pytest.warns(UserWarning, match="clip0000003_000010"):
        train(small, out)
    assert load_encoder(out / "audio.safetensors").config["dimension"] == 8
