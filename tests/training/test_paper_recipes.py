"""The paper's recipes at a small size: that they learn, and that a run can be repeated from its own recipe."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from inphase.models import ENCODERS, ImageEncoder, MotionEncoder, PoseEncoder, load_encoder, save_encoder
from inphase.training import Recipe, read_recipe, train
from inphase.training.build import build_encoder_with_loss, load_frame_sources

SMALL = ["data.name=stage", 'data.actions=["kick", "squat"]', "data.videos=6", "data.level=plain", "data.size=32",
         "encoder.size=[32, 32]", "encoder.convolutions=[32]", "encoder.hidden=[64]", "run.precision=32-true",
         "run.compile=false", "run.channels_last=false", "run.accelerator=cpu", "run.log_every=1"]  # fmt: skip


def small_recipe(name: str, *changes: str) -> Recipe:
    """Read a recipe of the paper for drawn videos of 32 pixels."""
    recipe = read_recipe(name, changes=[*SMALL, *changes])
    return replace(recipe, data={key: value for key, value in recipe.data.items() if key != "root"})


@pytest.mark.slow
def test_tcc_as_published_learns_and_normalized_it_does_not(tmp_path: Path) -> None:
    """With unit vectors of 128 dimensions TCC's softmaxes are flat: the loss stays near that of guessing, about 1."""
    ends = {}
    for normalize in ("false", "true"):
        losses: list[float] = []
        changes = ("encoder.backbone=efficientnet_lite0", "encoder.mode=frozen", "run.steps=50", "optimizer.lr=1e-3")
        recipe = replace(small_recipe("paper_tcc", *changes, f"encoder.normalize={normalize}"), augmentation=None)
        train(
            recipe,
            tmp_path / normalize,
            features=tmp_path / "features",
            on_status=lambda status, losses=losses: losses.extend([status.terms["loss"]] if status.terms else []),  # type: ignore[misc]
        )
        ends[normalize] = sum(losses[-10:]) / 10
    assert read_recipe("paper_tcc").encoder["normalize"] is False
    assert ends["false"] < 0.8
    assert ends["true"] > 0.9


@pytest.mark.parametrize("kind", [ImageEncoder, MotionEncoder, PoseEncoder])
def test_an_encoder_without_normalization_is_saved_so(kind: type, tmp_path: Path) -> None:
    given: dict[str, Any] = {} if kind is PoseEncoder else {"size": (32, 32), "weights": "saved"}
    given |= {ImageEncoder: {"convolutions": [4]}, MotionEncoder: {"hidden": [4]}}.get(kind, {})
    encoder = kind(normalize=False, dimension=8, **given)
    save_encoder(tmp_path / "encoder.safetensors", encoder)
    found = load_encoder(tmp_path / "encoder.safetensors")
    assert (found.normalizes, found.config) == (False, encoder.config)
    assert "normalize" not in kind(dimension=8, **given).config
    frames = torch.rand(1, 3, len(encoder.context.offsets), *(getattr(encoder, "shape", None) or (13, 3)))
    lengths = found.eval()(frames).norm(dim=-1)
    assert (lengths - 1).abs().min() > 1e-3


def test_scratch_is_one_word_and_a_run_of_it_can_be_repeated(tmp_path: Path) -> None:
    recipe = small_recipe("paper_gta", "encoder.mode=scratch", "encoder.backbone=efficientnet_lite0", "run.steps=1",
                          "batch.videos=2", "batch.frames=4")  # fmt: skip
    encoder = ENCODERS["image"](**{key: value for key, value in recipe.encoder.items() if key != "name"})
    assert all(parameter.requires_grad for parameter in encoder.parameters())
    train(recipe, tmp_path / "run")
    again = read_recipe(tmp_path / "run" / "recipe.toml")
    assert again.encoder["mode"] == "scratch"
    build_encoder_with_loss(again)
    train(again, tmp_path / "again")
    # What `reproduce` trains: no weights, which TOML cannot write.
    absent = replace(recipe, encoder={**recipe.encoder, "weights": None})
    train(absent, tmp_path / "absent")
    build_encoder_with_loss(read_recipe(tmp_path / "absent" / "recipe.toml"))
    with pytest.raises(ValueError, match="mode 'scratch' reads no weights"):
        ImageEncoder(mode="scratch", weights="some.h5")
    with pytest.raises(ValueError, match="name the source of its weights"):
        ImageEncoder(mode="train_all", weights=None)


def test_the_papers_runs_train_on_the_whole_training_split() -> None:
    for name in ("paper_gta", "vggsound_cannon"):
        assert read_recipe(name).validation == {"fraction": 0.0}
    recipe = small_recipe("paper_gta", "encoder.backbone=efficientnet_lite0", "encoder.mode=scratch")
    sources = load_frame_sources(recipe, build_encoder_with_loss(recipe).encoder)
    assert (len(sources.train.videos), sources.validation) == (12, None)
    assert read_recipe("vggsound_cannon").loss["variant"] == "released"
