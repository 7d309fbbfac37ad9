"""What every method promises, whichever it is: the frames it asks for are the frames it scores."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from inphase.losses import LOSSES, Loss, Sequences
from tests.losses.groups import make_group

names = pytest.mark.parametrize("name", sorted(LOSSES))


def film(criterion: Loss, totals: list[int], *, count: int = 20, filling: float = float("nan")) -> Sequences:
    """Embed at random what the criterion asks for; the last video is shown at fewer frames than the others."""
    rng = np.random.default_rng(0)
    counts = [count] * (len(totals) - 1) + [count // 2]
    frames = [
        torch.from_numpy(criterion.frames(total, count=size, rng=rng))
        for total, size in zip(totals, counts, strict=True)
    ]
    values = [torch.from_numpy(rng.standard_normal((len(frame), 128))).float() for frame in frames]
    group = make_group(values, frames=frames, totals=torch.tensor(totals), filling=filling)
    labels = torch.from_numpy(rng.integers(-1, 10, group.frames.shape))
    return replace(group, labels=labels, progress=group.positions[:, :, None].repeat(1, 1, 10))


@names
@pytest.mark.parametrize("total", [3, 20, 60, 400])
def test_frames(name: str, total: int) -> None:
    criterion = LOSSES[name]()
    frames = criterion.frames(total, count=20, rng=np.random.default_rng(0))
    again = criterion.frames(total, count=20, rng=np.random.default_rng(0))
    assert frames.dtype == np.int64
    assert frames.shape == (20 * criterion.blocks,)
    assert (frames >= 0).all()
    assert (frames < total).all()
    assert (frames == again).all()
    assert len(set(frames)) > 1
    plain = np.arange(20) % total
    shared = criterion.frames(total, count=20, rng=np.random.default_rng(0), draw=lambda *_, **__: plain)
    assert (shared[:20] == plain).all() == criterion.shares


@names
@pytest.mark.parametrize("totals", [[90, 60], [60, 90, 45, 70]])
def test_loss(name: str, totals: list[int]) -> None:
    torch.manual_seed(0)
    criterion = LOSSES[name]()
    group = film(criterion, totals)
    group.values.requires_grad_()
    terms = criterion(group)
    assert terms["loss"].shape == ()
    assert all(value.isfinite() for value in terms.values())
    terms["loss"].backward()
    assert group.values.grad is not None
    assert group.values.grad.isfinite().all()
    assert group.values.grad.any()
    assert not group.values.grad[~group.mask].any()
    assert all(p.grad is not None and p.grad.isfinite().all() for p in criterion.parameters())


@names
def test_half_precision_is_raised(name: str) -> None:
    torch.manual_seed(0)
    criterion = LOSSES[name]()
    group = film(criterion, [90, 60])
    losses = []
    for dtype in (torch.float32, torch.bfloat16):
        torch.manual_seed(1)
        values = group.values.bfloat16().to(dtype)
        losses.append(criterion(replace(group, values=values))["loss"])
    assert losses[0].dtype == losses[1].dtype == torch.float32
    torch.testing.assert_close(losses[0], losses[1])
    with torch.autocast("cpu", dtype=torch.bfloat16):
        torch.manual_seed(1)
        lowered = criterion(group)["loss"]
    assert lowered.dtype == torch.float32
    torch.testing.assert_close(lowered, losses[0], rtol=0.05, atol=0.05)


@names
def test_nothing_waits_for_the_device(name: str) -> None:
    criterion = LOSSES[name]()
    group = film(criterion, [90, 60, 70])
    # A tensor on "meta" has no values: looking at one fails, as mixing devices does.
    moved = {field: getattr(group, field).to("meta") for field in ("values", "frames", "totals", "labels", "progress")}
    assert criterion.to("meta")(replace(group, **moved))["loss"].device.type == "meta"


@names
def test_names(name: str) -> None:
    criterion = LOSSES[name]
    assert criterion.__name__.lower() == name.replace("_", "")
    assert criterion.__module__ == ("inphase.losses.loss" if name == "weighted" else f"inphase.losses.{name}")
    assert "Frames:" in (criterion.__doc__ or "")
    assert repr(criterion())


@names
@pytest.mark.parametrize("lengths", [[12, 12, 12], [12, 10, 8]])
def test_several_groups_are_scored_by_their_mean(name: str, lengths: list[int]) -> None:
    criterion = LOSSES[name]()
    groups = []
    for seed in range(3):
        rng = np.random.default_rng(seed)
        frames = [torch.from_numpy(criterion.frames(60, count=size, rng=rng)) for size in lengths]
        values = [torch.from_numpy(rng.standard_normal((len(frame), 128))).float() for frame in frames]
        group = make_group(values, frames=frames, totals=torch.full((3,), 60))
        labels = torch.from_numpy(rng.integers(0, 10, group.frames.shape))
        groups.append(replace(group, labels=labels, progress=group.positions[:, :, None].repeat(1, 1, 10)))
    torch.manual_seed(1)
    found = criterion.mean_over(groups)
    torch.manual_seed(1)
    scores = [criterion(group) for group in groups]
    for term, value in found.items():
        torch.testing.assert_close(value, torch.stack([score[term] for score in scores]).mean(), atol=1e-5, rtol=1e-5)
