"""GTA against two computations of its own: the paper's from oracles, the released code's as its authors wrote it."""

import math
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from inphase.losses import GTA, LOSSES
from tests import oracles
from tests.losses.groups import random_group
from tests.oracles import Grid

ABLATION: list[dict[str, Any]] = [
    {"minimum": minimum, "cost": cost, "cycle_weight": weight}
    for minimum in ("smooth", "soft")
    for cost in ("contrastive", "cosine")
    for weight in (1.0, 0.0)
]
settings = pytest.mark.parametrize("setting", ABLATION, ids=lambda s: "-".join(map(str, s.values())))
variants = pytest.mark.parametrize("variant", ["paper", "released"])


def sequences(m: int, n: int, *, batch: int = 3, d: int = 4) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(0)
    x, y = (torch.randn(batch, size, d, dtype=torch.float64, generator=generator) for size in (m, n))
    return x, y


def cosine(x: Grid, y: Grid) -> Grid:
    return np.asarray((x / np.linalg.norm(x, axis=1)[:, None]) @ (y / np.linalg.norm(y, axis=1)[:, None]).T)


def softmax(values: Grid, axis: int) -> Grid:
    shares = np.exp(values - values.max(axis, keepdims=True))
    return np.asarray(shares / shares.sum(axis, keepdims=True))


def paper(x: Grid, y: Grid, setting: dict[str, Any]) -> tuple[float, float]:
    """Compute both alignment losses and the cycle loss of one pair, eq. (9) and (13)."""
    gamma, beta, alpha = (setting.get(name, value) for name, value in (("gamma", 0.1), ("beta", 0.1), ("alpha", 1.0)))
    tables = []
    for u, v in ((x, y), (y, x)):
        contrastive = setting.get("cost") != "cosine"
        cost = oracles.contrastive_cost(u, v, beta) if contrastive else 1 - cosine(u, v)
        tables.append(oracles.table(cost, setting.get("minimum", "smooth"), gamma))
    q = oracles.cycle_matrix(tables[0], tables[1], alpha)
    return float(tables[0][-1, -1] + tables[1][-1, -1]), float(-np.log(np.diag(q)).sum())


def released(x: Grid, y: Grid) -> tuple[float, float]:
    """Compute the terms of one pair as the released code does: softmax over the first axis throughout, Q as logits."""
    similarity = cosine(x, y)
    table_ij = oracles.table(-np.log(softmax(similarity / 0.1, 0)), "smooth", 0.1)
    table_ji = oracles.table(-np.log(softmax(similarity.T / 0.1, 0)), "smooth", 0.1)
    q = (softmax(-table_ij, 0) @ softmax(-table_ji, 0)).T
    labels = 0.9 * np.eye(len(x)) + 0.1 / len(x)
    rows = -(labels * np.log(softmax(q, 1))).sum(1)
    return float(table_ij[-1, -1] + table_ji[-1, -1]), float(rows.mean())


def means(pairs: list[tuple[float, float]]) -> tuple[float, float]:
    align, cycle = np.mean(pairs, 0)
    return float(align), float(cycle)


@settings
@pytest.mark.parametrize(("m", "n"), [(1, 1), (1, 5), (5, 1), (6, 6), (7, 4)])
def test_paper(setting: dict[str, Any], m: int, n: int) -> None:
    x, y = sequences(m, n)
    terms = GTA(**setting).pair(x, y)
    align, cycle = means([paper(u, v, setting) for u, v in zip(x.numpy(), y.numpy(), strict=True)])
    assert set(terms) == {"loss", "align", "cycle"}
    assert terms["align"].item() == pytest.approx(align)
    assert terms["cycle"].item() == pytest.approx(cycle, abs=1e-12)
    assert terms["loss"].item() == pytest.approx(setting["cycle_weight"] * cycle + 0.1 * align)


def test_temperatures_and_weights_reach_their_terms() -> None:
    setting: dict[str, Any] = {"gamma": 0.4, "beta": 0.3, "alpha": 2.0}
    x, y = sequences(6, 5)
    terms = GTA(**setting, align_weight=0.7, cycle_weight=0.2).pair(x, y)
    align, cycle = means([paper(u, v, setting) for u, v in zip(x.numpy(), y.numpy(), strict=True)])
    assert terms["align"].item() == pytest.approx(align)
    assert terms["cycle"].item() == pytest.approx(cycle)
    assert terms["loss"].item() == pytest.approx(0.2 * cycle + 0.7 * align)


@pytest.mark.parametrize(("m", "n"), [(1, 1), (6, 6), (7, 4)])
def test_released(m: int, n: int) -> None:
    x, y = sequences(m, n)
    terms = GTA(variant="released").pair(x, y)
    align, cycle = means([released(u, v) for u, v in zip(x.numpy(), y.numpy(), strict=True)])
    assert terms["align"].item() == pytest.approx(align)
    assert terms["cycle"].item() == pytest.approx(cycle)
    assert terms["loss"].item() == pytest.approx(cycle + 0.1 * align)


def test_released_cycle_term_is_confined_where_the_papers_is_not() -> None:
    x, y = sequences(20, 20)
    assert 2.173 < GTA(variant="released").pair(x, y)["cycle"].item() < 3.074
    assert GTA().pair(x, y)["cycle"].item() > 20 * math.log(20) / 2


def test_rows_of_the_ablation_differ_as_they_should() -> None:
    x, y = sequences(8, 7)
    terms = {tuple(setting.values()): GTA(**setting).pair(x, y) for setting in ABLATION}
    losses = [term["loss"].item() for term in terms.values()]
    assert len({round(loss, 6) for loss in losses}) == len(ABLATION)
    for minimum, cost, _ in terms:
        with_cycle, without = terms[minimum, cost, 1.0], terms[minimum, cost, 0.0]
        assert with_cycle["align"] == without["align"]
        assert without["loss"].item() == pytest.approx(0.1 * without["align"].item())
        assert with_cycle["loss"].item() == pytest.approx((without["loss"] + with_cycle["cycle"]).item())
    for cost in ("contrastive", "cosine"):  # smoothMin bounds the best path from above, min^γ from below
        assert terms["smooth", cost, 1.0]["align"] > terms["soft", cost, 1.0]["align"]


@variants
@settings
def test_gradient(variant: str, setting: dict[str, Any]) -> None:
    x, y = (values.requires_grad_() for values in sequences(3, 4, batch=2))
    loss = GTA(variant=variant, **{**setting, "gamma": 0.3})  # type: ignore[arg-type]
    assert torch.autograd.gradcheck(lambda u, v: loss.pair(u, v)["loss"], (x, y))
    assert torch.autograd.gradcheck(lambda u, v: loss.pair(u, v, [2, 3], [4, 1])["loss"], (x, y))


def test_without_weight_the_cycle_term_is_reported_but_not_learned() -> None:
    x, y = (values.requires_grad_() for values in sequences(6, 5))
    terms = GTA(cycle_weight=0.0).pair(x, y)
    assert terms["cycle"].item() == pytest.approx(GTA().pair(x, y)["cycle"].item())
    assert not terms["cycle"].requires_grad
    learned = torch.autograd.grad(terms["loss"], x, retain_graph=True)[0]
    torch.testing.assert_close(learned, 0.1 * torch.autograd.grad(terms["align"], x)[0])


@variants
@settings
@pytest.mark.parametrize("filling", [0.0, float("nan")])
def test_a_padded_batch_is_the_mean_of_its_pairs(variant: str, setting: dict[str, Any], filling: float) -> None:
    x_lengths, y_lengths = [6, 3, 1], [2, 7, 1]
    x, y = sequences(6, 7)
    for b, (m, n) in enumerate(zip(x_lengths, y_lengths, strict=True)):
        x[b, m:], y[b, n:] = filling, filling
    x, y = x.requires_grad_(), y.requires_grad_()
    loss = GTA(variant=variant, **setting)  # type: ignore[arg-type]
    padded = loss.pair(x, y, torch.tensor(x_lengths), y_lengths)
    gradients = torch.autograd.grad(padded["loss"], (x, y))
    alone = []
    for b, (m, n) in enumerate(zip(x_lengths, y_lengths, strict=True)):
        u, v = x[b : b + 1, :m].detach().requires_grad_(), y[b : b + 1, :n].detach().requires_grad_()
        alone.append(loss.pair(u, v))
        expected = torch.autograd.grad(alone[-1]["loss"] / 3, (u, v))
        for gradient, one, size in zip(gradients, expected, (m, n), strict=True):
            torch.testing.assert_close(gradient[b, :size], one[0])
            assert (gradient[b, size:] == 0).all()
    for name, value in padded.items():
        torch.testing.assert_close(value, torch.stack([terms[name] for terms in alone]).mean())


@variants
@pytest.mark.parametrize(
    ("pairs", "chosen"),
    [("anchor", [(0, 1), (0, 2), (0, 3)]), ("all", [(0, 1), (0, 2), (0, 3), (1, 2), (1, 3), (2, 3)])],
)
@pytest.mark.parametrize("lengths", [[6, 6, 6, 6], [6, 2, 5, 1]])
def test_a_group_is_the_mean_of_its_pairs(
    variant: str, pairs: str, chosen: list[tuple[int, int]], lengths: list[int]
) -> None:
    group = random_group(lengths, d=4)
    loss = GTA(variant=variant, pairs=pairs)  # type: ignore[arg-type]
    parts = [group.values[k : k + 1, :size] for k, size in enumerate(lengths)]
    expected = [loss.pair(parts[i], parts[j]) for i, j in chosen]
    terms = loss(group)
    assert set(terms) == {"loss", "align", "cycle"}
    for name, value in terms.items():
        torch.testing.assert_close(value, torch.stack([one[name] for one in expected]).mean())


@variants
@pytest.mark.parametrize("minimum", ["smooth", "soft"])
def test_aligned_sequences_are_preferred(variant: str, minimum: str) -> None:
    generator = torch.Generator().manual_seed(0)
    x = torch.eye(20) + 0.1 * torch.randn(20, 20, generator=generator)
    y = x[torch.arange(0, 20, 2).repeat_interleave(2)] + 0.1 * torch.randn(20, 20, generator=generator)
    shuffled = y[torch.randperm(20, generator=generator)]
    loss = GTA(variant=variant, minimum=minimum)  # type: ignore[arg-type]
    good, bad = loss.pair(x[None], y[None]), loss.pair(x[None], shuffled[None])
    assert all(good[name] < bad[name] for name in ("loss", "align", "cycle"))


@variants
def test_descent_brings_sequences_into_phase(variant: str) -> None:
    generator = torch.Generator().manual_seed(0)
    x, y = (torch.randn(1, 8, 8, generator=generator).requires_grad_() for _ in range(2))
    loss = GTA(variant=variant)  # type: ignore[arg-type]
    first = loss.pair(x, y)["loss"].item()
    for _ in range(100):
        gradients = torch.autograd.grad(loss.pair(x, y)["loss"], (x, y))
        x, y = ((v - 0.1 * g).detach().requires_grad_() for v, g in zip((x, y), gradients, strict=True))
    last = loss.pair(x, y)["loss"].item()
    assert last < 0.75 * first


@variants
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
def test_precision_and_autocast(variant: str, dtype: torch.dtype) -> None:
    x, y = (values.to(dtype).requires_grad_() for values in sequences(6, 5))
    loss = GTA(variant=variant)  # type: ignore[arg-type]
    terms, exact = loss.pair(x, y), loss.pair(x.detach().double(), y.detach().double())
    with torch.autocast("cpu", dtype=torch.bfloat16):
        lowered = loss.pair(x, y)
    for name, value in terms.items():
        assert value.dtype == (torch.float64 if dtype == torch.float64 else torch.float32)
        torch.testing.assert_close(value.double(), exact[name], rtol=1e-5, atol=1e-5)
        assert torch.equal(lowered[name], value)
    assert torch.autograd.grad(terms["loss"], x)[0].dtype == dtype


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        ({"minimum": "hard"}, "minimum must be one of 'smooth', 'soft'; got 'hard'"),
        ({"cost": "squared_euclidean"}, "cost must be one of 'contrastive', 'cosine'; got 'squared_euclidean'"),
        ({"variant": "mine"}, "variant must be one of 'paper', 'released'; got 'mine'"),
        ({"pairs": "some"}, "pairs must be one of 'anchor', 'all'; got 'some'"),
        ({"gamma": -0.1}, "gamma must be at least 0 and finite, got -0.1"),
        ({"beta": 0}, "beta must be positive and finite, got 0"),
        ({"alpha": 0}, "alpha must be positive and finite, got 0"),
        ({"align_weight": -1}, "align_weight must be at least 0 and finite, got -1"),
        ({"cycle_weight": float("nan")}, "cycle_weight must be at least 0 and finite, got nan"),
    ],
)
def test_wrong_settings_are_named(setting: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        GTA(**setting)


def test_it_is_found_by_name_holds_nothing_to_learn_and_shows_its_settings() -> None:
    assert LOSSES["gta"] is GTA
    assert not list(GTA().parameters())
    assert repr(GTA(gamma=0.2, cost="cosine")) == (
        "GTA(pairs='anchor', gamma=0.2, beta=0.1, alpha=1.0, align_weight=0.1, cycle_weight=1.0, "
        "minimum='smooth', cost='cosine', variant='paper')"
    )
