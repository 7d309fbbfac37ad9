import inspect
import pickle
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file
from torch import nn

from inphase.models import ENCODERS, Encoder, ImageEncoder, load_encoder, save_encoder

SMALL: dict[str, dict[str, Any]] = {
    "audio": {"hidden": (8,), "dimension": 4},
    "image": {"mode": "scratch", "weights": None, "size": (32, 32), "convolutions": (4,), "hidden": (4,)},
    "motion": {"weights": None, "size": (32, 32), "hidden": (4,), "context": (-4, 0)},
    "motion_appearance": {"weights": None, "size": (32, 32), "hidden": (4,), "context": (-4, 0)},
    "pose": {"joints": ("left_hip", "right_hip", "left_shoulder", "right_shoulder"), "context": (-4, 0)},
    "pose_arms": {"hidden": (4,), "context": (-4, 0)},
    "pose_fine_tuned": {"hidden": (4,), "context": (-4, 0)},
    "transformer": {"weights": None, "size": (32, 32), "width": 4, "layers": 1, "heads": 2, "context": (-4, 0)},
}


@pytest.mark.parametrize("name", [name for name in ENCODERS if name != "both"])  # test_joint_encoder has that one
def test_an_encoder_comes_back_the_same(name: str, tmp_path: Path, device: torch.device) -> None:
    encoder = ENCODERS[name](**SMALL[name]).to(device)
    values = torch.rand(2, 3, 2, *encoder.shape, device=device)
    encoder(values)  # in training mode: running statistics are no longer what a new encoder has
    save_encoder(tmp_path / "encoder.safetensors", encoder)
    again = load_encoder(tmp_path, device=device)
    with torch.no_grad():
        torch.testing.assert_close(again(values), encoder.eval()(values), atol=0, rtol=0)
    assert again.config == encoder.config
    # `normalize` is left out where it has its default.
    assert set(again.config) == set(inspect.signature(ENCODERS[name]).parameters) - {"normalize"}
    assert not again.training
    assert [path.name for path in tmp_path.iterdir()] == ["encoder.safetensors"]


def test_published_weights_are_not_needed_to_load(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    encoder = ImageEncoder(size=(32, 32), convolutions=(4,), hidden=())
    save_encoder(tmp_path / "encoder.safetensors", encoder)
    monkeypatch.setattr("inphase.models.backbone.PACKAGE", "no_such_package")
    again = load_encoder(tmp_path / "encoder.safetensors")
    assert isinstance(again, ImageEncoder)
    assert again.mode == "frozen"
    assert torch.equal(again.state_dict()["backbone.stem.weight"], encoder.state_dict()["backbone.stem.weight"])


def test_other_files_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="holds no encoder"):
        load_encoder(tmp_path)
    text = tmp_path / "notes.txt"
    text.write_text("not an encoder")
    with pytest.raises(ValueError, match=r"is not an encoder file .*: name a run folder or an encoder file"):
        load_encoder(text)
    with pytest.raises(ValueError, match="does not exist"):
        load_encoder(tmp_path / "absent")
    save_file({"a": torch.zeros(1)}, tmp_path / "plain.safetensors")
    with pytest.raises(ValueError, match="has no description of its encoder"):
        load_encoder(tmp_path / "plain.safetensors")
    save_file(
        {"a": torch.zeros(1)},
        tmp_path / "new.safetensors",
        metadata={"inphase_encoder": '{"name": "smell", "config": {}}'},
    )
    with pytest.raises(ValueError, match="no encoder 'smell': choose one of audio, both, image, motion, motion_app"):
        load_encoder(tmp_path / "new.safetensors")
    (tmp_path / "pickled").write_bytes(pickle.dumps({"a": 1}))
    with pytest.raises(Exception, match=r"[Hh]eader"):
        load_encoder(tmp_path / "pickled")


def test_what_could_not_be_loaded_is_not_saved(tmp_path: Path) -> None:
    class Private(Encoder):
        head = nn.Identity()

    with pytest.raises(ValueError, match="Private is not an encoder"):
        save_encoder(tmp_path / "private.safetensors", Private(context=(0,)))


@pytest.mark.skipif(torch.cuda.is_available(), reason="this machine has a GPU")
def test_a_device_that_is_missing_is_named(tmp_path: Path) -> None:
    save_encoder(tmp_path / "encoder.safetensors", ENCODERS["pose"](**SMALL["pose"]))
    with pytest.raises(ValueError, match="device cuda: torch finds no GPU on this machine; use cpu"):
        load_encoder(tmp_path, device="cuda")
