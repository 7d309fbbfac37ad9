import pytest
import torch
from torch import Tensor

from inphase.models.pose_encoder import PoseEncoder

TRUNK = ("left_hip", "right_hip", "left_shoulder", "right_shoulder")


def names(count: int) -> tuple[str, ...]:
    return (*(f"joint{index}" for index in range(count - 4)), *TRUNK)


def build(count: int = 13, *, context: int = 3, space: int = 2) -> PoseEncoder:
    torch.manual_seed(0)
    return PoseEncoder(joints=names(count), context=range(context), space=space).eval()


def poses(*shape: int, count: int = 13, space: int = 2) -> Tensor:
    points = 100 + 20 * torch.randn(*shape, count, space, generator=torch.Generator().manual_seed(1))
    return torch.cat([points, torch.ones(*shape, count, 1)], -1)


@pytest.mark.parametrize(("count", "space"), [(13, 2), (17, 2), (33, 2), (13, 3), (17, 3)])
def test_every_layout_gives_unit_vectors_from_less_than_a_megabyte(count: int, space: int) -> None:
    encoder = build(count, context=5, space=space)
    found = encoder(poses(2, 4, 5, count=count, space=space))
    assert found.shape == (2, 4, 128)
    torch.testing.assert_close(found.norm(dim=-1), torch.ones(2, 4))
    assert sum(4 * value.numel() for value in encoder.state_dict().values()) < 1e6


def test_where_somebody_stands_and_how_large_they_are_does_not_matter() -> None:
    encoder, values = build(), poses(1, 6, 3)
    moved = values.clone()
    moved[..., :2] = 3 * values[..., :2] - 70
    torch.testing.assert_close(encoder(moved), encoder(values), atol=1e-5, rtol=0)


def test_travelling_within_the_window_matters() -> None:
    encoder, values = build(), poses(1, 6, 3)
    travelling = values.clone()
    travelling[:, :, 1, :, :2] += 30.0
    assert (encoder(travelling) - encoder(values)).abs().max() > 0.01


def test_what_is_not_seen_has_no_influence_even_where_it_is_not_a_number() -> None:
    encoder, values = build(), poses(1, 6, 3)
    values[0, 2, 1, 9:11, 2] = 0  # both hips
    values[0, 4, :, :, 2] = 0  # nobody
    expected = encoder(values)
    values[..., :2][values[..., 2] == 0] = float("nan")
    torch.testing.assert_close(encoder(values), expected, atol=0, rtol=0)
    assert expected.isfinite().all()


def test_visibility_is_an_input_and_may_be_left_out_where_all_is_seen() -> None:
    encoder, values = build(), poses(1, 6, 3)
    torch.testing.assert_close(encoder(values[..., :2]), encoder(values))
    doubtful = values.clone()
    doubtful[..., 0, 2] = 0.3
    assert (encoder(doubtful) - encoder(values)).abs().max() > 1e-3


def test_one_window_measured_by_hand() -> None:
    encoder = PoseEncoder(joints=TRUNK, context=(-4, 0))
    upright = torch.tensor([[-1.0, 0], [1, 0], [-1, -4], [1, -4]])
    points = torch.stack([upright, upright + torch.tensor([8.0, 0])])[None]
    body, travel = encoder.normalize(points, torch.ones(1, 2, 4, dtype=torch.bool))
    torch.testing.assert_close(body, torch.stack([upright / 4, upright / 4])[None])
    torch.testing.assert_close(travel, torch.tensor([[[-1.0, 0], [1, 0]]]))


def test_a_joint_that_appears_has_not_moved() -> None:
    encoder = PoseEncoder(joints=(*TRUNK, "hand"), context=(-4, 0), hidden=(), dimension=10 + 10 + 4 + 10).eval()
    encoder.head = torch.nn.Identity()
    frame = torch.tensor([[-1.0, 0, 1], [1, 0, 1], [-1, -4, 1], [1, -4, 1], [4, 4, 1]])
    values = torch.stack([frame, frame])
    values[0, 4, 2], values[1, :4, 0] = 0, values[1, :4, 0] + 4
    found = encoder(values[None, None])[0, 0]
    posture, motion, travel = found[:10].view(5, 2), found[10:20].view(5, 2), found[20:24].view(2, 2)
    unit = posture[1, 0] * 4
    torch.testing.assert_close(motion / unit, torch.tensor([[3.0, 0]] * 4 + [[0, 0]]))
    torch.testing.assert_close(travel / unit, torch.tensor([[-0.5, 0], [0.5, 0]]))
    torch.testing.assert_close(posture[4] / unit, torch.tensor([0.0, 1]))


def test_without_hips_the_middle_of_what_is_seen_is_the_center() -> None:
    points = torch.tensor([[9.0, 9], [9, 9], [2, 0], [4, 0]]).expand(1, 1, 4, 2)
    seen = torch.tensor([[[False, False, True, True]]])
    body, _ = PoseEncoder(joints=TRUNK, context=(0,)).normalize(points, seen)
    torch.testing.assert_close(body[0, 0], torch.tensor([[0.0, 0], [0, 0], [-2, 0], [2, 0]]))  # in half spreads of 1


def test_a_torso_that_points_at_the_camera_is_no_unit() -> None:
    points = torch.tensor([[-1.0, 0], [1, 0], [-1, 0.001], [1, 0.001]]).expand(1, 1, 4, 2)
    body, _ = PoseEncoder(joints=TRUNK, context=(0,)).normalize(points, torch.ones(1, 1, 4, dtype=torch.bool))
    torch.testing.assert_close(body[0, 0, 0], torch.tensor([-2.0, 0]))


def test_frames_with_nobody_do_not_say_where_the_others_stand() -> None:
    encoder, values = build(), poses(1, 6, 3)
    values[:, :, 2, :, 2] = 0
    moved = values.clone()
    moved[..., :2] += 500
    torch.testing.assert_close(encoder(moved), encoder(values), atol=1e-4, rtol=0)


def test_a_wrong_input_is_named() -> None:
    with pytest.raises(ValueError, match="joints lacks right_shoulder"):
        PoseEncoder(joints=TRUNK[:3], context=(-4, 0))
    with pytest.raises(ValueError, match=r"pose frames of shape \(13, 3\), got \(17, 3\)"):
        build()(poses(1, 2, 3, count=17))
    with pytest.raises(ValueError, match="takes 3 context frames, got 5"):
        build()(poses(1, 2, 5))
