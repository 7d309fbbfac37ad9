from pathlib import Path
from typing import Any

import pytest
import torch

from inphase.models import PoseEncoder, load_encoder, load_shipped, save_encoder
from inphase.models.pose_encoder import FineTunedPoseEncoder
from inphase.training.build import build_encoder


def same(one: torch.nn.Module, other: torch.nn.Module) -> bool:
    left, right = one.state_dict(), other.state_dict()
    return left.keys() == right.keys() and all(torch.equal(left[name], right[name]) for name in left)


def test_an_encoder_starts_as_the_one_that_ships_and_trains() -> None:
    encoder = build_encoder({"name": "pose", "start": "shipped"})
    assert same(encoder, load_shipped("pose"))
    assert encoder.training
    assert all(parameter.requires_grad for parameter in encoder.parameters())


def test_an_encoder_starts_as_one_of_another_run(tmp_path: Path) -> None:
    before = PoseEncoder(context=(0,), hidden=(8,))
    save_encoder(tmp_path / "encoder.safetensors", before)
    after = build_encoder({"name": "pose", "start": str(tmp_path)})
    assert same(after, before)
    assert after.config == before.config


def test_a_fine_tuned_encoder_keeps_the_head_it_starts_from(tmp_path: Path) -> None:
    encoder, shipped = build_encoder({"name": "pose_fine_tuned", "start": "shipped"}), load_shipped("pose")
    assert isinstance(encoder, FineTunedPoseEncoder)
    assert same(encoder.head, shipped.head)
    optimizer = torch.optim.SGD([each for each in encoder.parameters() if each.requires_grad], lr=1.0)
    poses = torch.rand(2, 4, len(encoder.context.offsets), *encoder.shape)
    encoder(poses).sum().backward()
    optimizer.step()
    assert not same(encoder.head, shipped.head)
    assert same(encoder.start, shipped.head)
    save_encoder(tmp_path / "encoder.safetensors", encoder)
    again = build_encoder({"name": "pose_fine_tuned", "start": str(tmp_path)})
    assert same(again, encoder)


def test_weights_of_routes_are_set_and_checked(tmp_path: Path) -> None:
    table = {"name": "pose_fine_tuned", "start": "shipped"}
    encoder = build_encoder({**table, "route_weights": {"tuned": 0.5, "arms": 2}})
    assert (float(encoder.get_buffer("tuned")), float(encoder.get_buffer("arms"))) == (0.5, 2.0)
    save_encoder(tmp_path / "encoder.safetensors", encoder)
    assert float(load_encoder(tmp_path).get_buffer("tuned")) == 0.5
    for weights, message in (
        ({"motion": 1.0}, "names 'motion', but routes of this encoder with a weight: tuned, arms|arms, tuned"),
        ({"arms": "high"}, "route_weights.arms must be"),
        ({"arms": 0.0}, "route_weights.arms must be above 0"),
        ({"arms": float("nan")}, "route_weights.arms must be above 0|finite"),
    ):
        with pytest.raises(ValueError, match=message):
            build_encoder({**table, "route_weights": weights})


def test_nothing_said_of_a_start_draws_weights() -> None:
    table = {"name": "pose", "start": "", "hidden": [8]}
    assert not same(build_encoder(table), build_encoder(table))


@pytest.mark.parametrize(
    ("table", "message"),
    [
        ({"name": "pose", "start": "shipped", "hidden": [8]}, "leave out hidden"),
        ({"name": "audio", "start": "FILE"}, "holds a PoseEncoder"),
        ({"name": "pose", "start": "nowhere"}, "nowhere does not exist"),
        ({"name": "pose_fine_tuned", "start": ""}, "needs start"),
    ],
)
def test_a_start_that_does_not_fit_is_refused(table: dict[str, Any], message: str, tmp_path: Path) -> None:
    save_encoder(tmp_path / "small.safetensors", PoseEncoder(hidden=(8,)))
    start = table["start"].replace("FILE", str(tmp_path / "small.safetensors"))
    with pytest.raises(ValueError, match=message):
        build_encoder({**table, "start": start})
