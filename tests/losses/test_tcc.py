"""TCC against scalars worked out frame by frame."""

import math
from typing import Any

import numpy as np
import pytest
import torch

from inphase.losses.tcc import TCC
from tests.losses.groups import aligned_group, assert_padding_is_silent, make_group, random_group, shuffled
from tests.oracles import Grid

kinds = pytest.mark.parametrize("kind", ["variance", "mse", "huber", "classification"])


def shares(logits: list[float]) -> list[float]:
    weights = [math.exp(value) for value in logits]
    return [weight / sum(weights) for weight in weights]


def one_way(u: Grid, v: Grid, times: list[float], kind: str, *, cosine: bool = False, scale: float) -> float:
    """Walk from each frame of u through v and back, and average what its return costs."""

    def similarity(a: Grid, b: Grid) -> float:
        if cosine:
            return float(a @ b) / math.sqrt(float(a @ a) * float(b @ b)) / scale
        return -sum(float(p - q) ** 2 for p, q in zip(a, b, strict=True)) / scale

    costs = []
    for i, start in enumerate(u):
        there = shares([similarity(start, frame) for frame in v])
        nearest = np.sum([share * frame for share, frame in zip(there, v, strict=True)], 0)
        back = shares([similarity(nearest, frame) for frame in u])
        mean = sum(share * time for share, time in zip(back, times, strict=True))
        spread = sum(share * (time - mean) ** 2 for share, time in zip(back, times, strict=True))
        off = abs(times[i] - mean)
        smooth = [0.9 * (k == i) + 0.1 / len(u) for k in range(len(u))]
        costs.append({
            "variance": off**2 / spread + 0.001 * math.log(spread),
            "mse": off**2,
            "huber": off**2 / 2 if off <= 0.1 else 0.1 * (off - 0.05),
            "classification": -sum(label * math.log(share) for label, share in zip(smooth, back, strict=True)),
        }[kind])  # fmt: skip
    return sum(costs) / len(costs)


@kinds
@pytest.mark.parametrize("lengths", [[3, 3, 3], [4, 2, 3]])
@pytest.mark.parametrize("setting", [{}, {"similarity": "cosine"}, {"by_dimension": False, "tau": 0.7}])
def test_by_hand(kind: Any, lengths: list[int], setting: dict[str, Any]) -> None:
    group = random_group(lengths, d=2)
    parts = [group.values[k, :size].numpy() for k, size in enumerate(lengths)]
    scale = 0.2 if setting.get("by_dimension", True) else 0.7  # τ D, or τ alone
    expected = [
        one_way(parts[i], parts[j], [t / lengths[i] for t in range(lengths[i])], kind,
                cosine="similarity" in setting, scale=scale)
        for i in range(3) for j in range(3) if i != j
    ]  # fmt: skip
    assert TCC(kind=kind, **setting)(group)["loss"].item() == pytest.approx(np.mean(expected))
    anchored = TCC(kind=kind, pairs="anchor", **setting)(group)["loss"].item()
    assert anchored == pytest.approx(np.mean([expected[index] for index in (0, 1, 2, 4)]))  # (0,1) (0,2) (1,0) (2,0)


def test_two_frames_in_numbers() -> None:
    # D = 1, τ D = 0.1: from 0 to (0, 1) the shares are 1 : e^−10, so β is one too and nearly all comes home.
    group = make_group([torch.tensor([[0.0], [1.0]], dtype=torch.float64)] * 2, totals=torch.tensor([4, 4]))
    far = math.exp(-10) / (1 + math.exp(-10))
    back = shares([-((far - 0) ** 2) / 0.1, -((far - 1) ** 2) / 0.1])
    off = 0.25 * back[1]  # frames at 0 and 1/4
    assert TCC(kind="mse")(group)["loss"].item() == pytest.approx(off**2)
    spread = 0.25**2 * back[0] * back[1]
    assert TCC()(group)["loss"].item() == pytest.approx(off**2 / spread + 0.001 * math.log(spread))


@kinds
@pytest.mark.parametrize("setting", [{"unit": True, "by_dimension": False}, {"similarity": "cosine", "tau": 0.01}])
def test_aligned_sequences_are_preferred(kind: Any, setting: dict[str, Any]) -> None:
    good, group = TCC(kind=kind, **setting), aligned_group()
    noise = 0.3 * torch.randn(group.values.shape, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    blurred = make_group(list(group.values + noise), frames=list(group.frames))
    assert good(group)["loss"] < good(blurred)["loss"]
    mixed = shuffled(group)  # frame numbers stay, so moments of neighbors in the embedding lie apart
    if kind == "classification":  # it knows frames, not their order
        assert good(group)["loss"].item() == pytest.approx(good(mixed)["loss"].item())
    else:
        assert good(group)["loss"] < good(mixed)["loss"]
    assert good(group)["error"] < good(mixed)["error"]


@kinds
def test_gradient_and_padding(kind: Any) -> None:
    assert_padding_is_silent(TCC(kind=kind), [5, 2, 4])
    group = random_group([3, 2], d=2)

    def loss(values: torch.Tensor) -> torch.Tensor:
        return TCC(kind=kind)(make_group([values[0], values[1, :2]]))["loss"]  # type: ignore[no-any-return]

    assert torch.autograd.gradcheck(loss, group.values.requires_grad_())


@kinds
@pytest.mark.parametrize("scale", [1e-4, 1e3])
def test_collapsed_and_exploded_embeddings_keep_finite_gradients(kind: Any, scale: float) -> None:
    values = (scale * random_group([6, 6]).values).float().requires_grad_()
    group = make_group(list(values.detach()))
    object.__setattr__(group, "values", values)
    loss = TCC(kind=kind)(group)["loss"]
    assert loss.isfinite()
    assert torch.autograd.grad(loss, values)[0].isfinite().all()


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        ({"kind": "ce"}, "kind must be one of 'variance', 'mse', 'huber', 'classification'; got 'ce'"),
        ({"similarity": "dot"}, "similarity must be one of 'l2', 'cosine'; got 'dot'"),
        ({"tau": 0}, "tau must be positive and finite, got 0"),
        ({"label_smoothing": 1}, "label_smoothing must be at least 0 and below 1, got 1"),
    ],
)
def test_wrong_settings_are_named(setting: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        TCC(**setting)
