import sys
from pathlib import Path

import pytest
import torch

from inphase.models import PoseEncoder, load_encoder, resolve_encoder, save_encoder
from inphase.models.weights import check_encoder

TOYS = """
import torch
from torch import nn
from inphase.models import Encoder
from inphase.pose.pose import JOINTS13

class Toy(Encoder):
    modality = "pose"

    def __init__(self, *, joints=JOINTS13, dimension=4, context=(-2, 0), edges="clamp", rate=None):
        super().__init__(context=context, edges=edges, rate=rate)
        self.config |= {"joints": list(joints), "dimension": dimension}
        self.shape = (len(joints), 3)
        self.head = nn.Linear(len(context) * len(joints) * 2, dimension)

    def features(self, frames):
        return frames[..., :2] / 100

    def combine(self, features):
        return nn.functional.normalize(self.head(features.flatten(1)), dim=-1)

class Unfinished(Encoder):
    def combine(self, features):
        return features

class Bare(Toy):
    def __init__(self, *, context=(0,)):
        super(Toy, self).__init__(context=context)
        self.config["when"] = object()

class NotAnEncoder(nn.Module):
    pass
"""


@pytest.fixture
def toys(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """Write a module of encoders outside the package, and give its name."""
    (tmp_path / "toy_encoders.py").write_text(TOYS)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "toy_encoders", raising=False)
    return "toy_encoders"


def test_an_encoder_is_found_by_its_name_or_by_where_it_is_defined(toys: str, tmp_path: Path) -> None:
    assert resolve_encoder("pose") is PoseEncoder
    kind = resolve_encoder(f"{toys}:Toy")
    encoder = kind(dimension=3)  # type: ignore[call-arg]
    check_encoder(encoder, name="Toy")
    save_encoder(tmp_path / "encoder.safetensors", encoder)
    again = load_encoder(tmp_path)
    assert type(again) is kind
    assert again.config == encoder.config
    assert all(torch.equal(value, again.state_dict()[name]) for name, value in encoder.state_dict().items())


@pytest.mark.parametrize(
    ("name", "message"),
    [
        (
            "smell",
            "no encoder 'smell': choose one of audio, both, image, motion, motion_appearance, pose, pose_arms, "
            "pose_fine_tuned, transformer, or name your own package.module:Class",
        ),
        ("nowhere_at_all:Toy", "'nowhere_at_all:Toy' cannot be imported .No module named"),
        ("TOYS:Absent", "cannot be imported .*has no attribute 'Absent'"),
        ("TOYS:NotAnEncoder", "is not an encoder: make it a subclass of inphase.models.Encoder"),
        ("TOYS:Unfinished", "it lacks features, modality .one of pose, image, both, audio."),
    ],
)
def test_what_is_missing_in_a_class_is_listed(toys: str, name: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        resolve_encoder(name.replace("TOYS", toys))


def test_what_is_missing_in_an_encoder_is_listed(toys: str) -> None:
    bare = resolve_encoder(f"{toys}:Bare")()  # type: ignore[call-arg]
    with pytest.raises(
        ValueError, match=r"Bare is not a complete encoder: it lacks self\.shape, self\.head, "
    ) as found:
        check_encoder(bare, name="Bare")
    for missing in ("self.config['dimension']", "self.config['joints']", "argument 'edges'", "argument 'when'", "JSON"):
        assert missing in str(found.value)
