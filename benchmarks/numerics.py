"""Measure the lengths up to which gradients of the whole table are accurate.

    python -m benchmarks.numerics [--device cpu|cuda]

Two sequences of T unit vectors are drawn and their contrastive costs rounded to float32. Three gradients are compared
with the float64 gradient of the same costs: that of inphase, that of costs perturbed by half a unit in the last place
(the limit of any float32 computation of the costs), and that of a recursion whose state is float32.
"""

import argparse
from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor

from benchmarks.timing import lay_out
from inphase.align import accumulate, contrastive_cost, cosine_cost, cycle_consistency, smooth_min
from inphase.align.recursion import BORDER, accumulate_reference

LENGTHS = (20, 32, 64, 128, 256, 512)
SEEDS = 5
GAMMA = 0.1
Loss = Callable[[Tensor], Tensor]  # of the tables of both directions [2, T, T]
Accumulate = Callable[[Tensor], Tensor]


def main() -> None:
    """Print the tables of docs/lab/numerics.md."""
    parser = argparse.ArgumentParser(description="Measure the lengths up to which gradients are accurate.")
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    device = parser.parse_args().device
    draws = {"Unrelated frames": unrelated, "A motion and its warped copy": warped, "The same, cosine cost": alike}
    for name, draw in draws.items():
        print(f"{name}: error of the gradient, the largest over its largest entry, worst of {SEEDS} draws\n")
        print(table(draw, device), end="\n\n")


def table(draw: Callable[[int, int], Tensor], device: str, *, longest: int = 512) -> str:
    """Lay out the errors by length: of the cycle term, of a random gradient in every cell, of the end of the table."""
    head = ["T", "cycle: inphase", "half an ulp", "float32 state", "dense: inphase", "half an ulp", "float32 state"]
    return lay_out([*head, "end: inphase"], [measure(draw, T, device) for T in LENGTHS if longest >= T])


def measure(draw: Callable[[int, int], Tensor], length: int, device: str) -> list[str]:
    """Return one row of the table, the worst of the draws."""
    errors = []
    for seed in range(SEEDS):
        costs = draw(length, seed)
        noise = torch.rand(costs.shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64) - 0.5
        nudged = costs.double() + noise * torch.finfo(torch.float32).eps * 2 ** costs.double().abs().log2().floor()
        row = []
        for loss in (_cycle, _dense(costs.shape, seed), _corner):
            exact = gradient(loss, _exact, costs.double())
            fast = gradient(loss, _fast, costs.to(device)).cpu()
            row.append(_error(fast, exact))
            if loss is not _corner:
                row.append(_error(gradient(loss, _exact, nudged), exact))
                row.append(_error(gradient(loss, accumulate_float32, costs), exact))
        errors.append(row)
    return [str(length), *[f"{max(column):.0e}" for column in zip(*errors, strict=True)]]


def unrelated(length: int, seed: int) -> Tensor:
    """Cost random unit vectors, as an untrained network on unrelated frames would give, [2, T, T]."""
    x, y = torch.randn(2, 1, length, 128, generator=torch.Generator().manual_seed(seed))
    return _both_ways(x, y)


def warped(length: int, seed: int) -> Tensor:
    """Cost a smooth walk on the sphere against itself played at another speed, as a trained network would give."""
    return _both_ways(*_walks(length, seed))


def alike(length: int, seed: int) -> Tensor:
    """Cost the same by cosine distance: neighboring frames cost nearly the same, so that many paths tie."""
    x, y = _walks(length, seed)
    return torch.cat([cosine_cost(x, y), cosine_cost(y, x)])


def gradient(loss: Loss, accumulate: Accumulate, costs: Tensor) -> Tensor:
    """Take the gradient of a loss of both tables with respect to both costs."""
    costs = costs.detach().requires_grad_()
    (result,) = torch.autograd.grad(loss(accumulate(costs)), costs)
    return result


def accumulate_float32(cost: Tensor) -> Tensor:
    """Accumulate with every cell rounded to float32: as a kernel without precautions does."""
    _, m, n = cost.shape
    rows = torch.arange(m)
    skewed = cost[:, rows, (torch.arange(m + n - 1)[:, None] - rows).clamp(0, n - 1)]
    border = torch.full_like(cost[:, 0, :1], BORDER)
    older = torch.cat([torch.zeros_like(border), border.expand(-1, m)], 1)
    newer = border.expand(-1, m + 1)
    diagonals = []
    for k in range(m + n - 1):
        cells = skewed[:, k] + smooth_min(torch.stack([older[:, :-1], newer[:, :-1], newer[:, 1:]], -1), gamma=GAMMA)
        diagonals.append(cells)
        older, newer = newer, torch.cat([border, torch.where(rows <= k, cells, BORDER)], 1)
    return torch.stack(diagonals, 1)[:, rows[:, None] + torch.arange(n), rows[:, None]]


def _walks(length: int, seed: int) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    walk = F.normalize(torch.randn(1, 4 * length, 128, generator=generator).cumsum(1), dim=2)
    first, second = (torch.rand(2, length, generator=generator).sort().values * (4 * length - 1)).long()
    return walk[:, first], walk[:, second]


def _both_ways(x: Tensor, y: Tensor) -> Tensor:
    return torch.cat([contrastive_cost(x, y), contrastive_cost(y, x)])


def _exact(cost: Tensor) -> Tensor:
    return accumulate_reference(cost, "smooth", GAMMA, False)


def _fast(cost: Tensor) -> Tensor:
    return accumulate(cost, kind="smooth", gamma=GAMMA)


def _cycle(tables: Tensor) -> Tensor:
    return cycle_consistency(tables[:1], tables[1:]).sum()


def _corner(tables: Tensor) -> Tensor:
    return tables[:, -1, -1].sum()


def _dense(shape: torch.Size, seed: int) -> Loss:
    weights = torch.randn(shape, generator=torch.Generator().manual_seed(100 + seed), dtype=torch.float64)
    return lambda tables: (tables.double() * weights.to(tables.device)).sum()


def _error(value: Tensor, exact: Tensor) -> float:
    return float((value - exact).abs().max() / exact.abs().max())


if __name__ == "__main__":
    main()
