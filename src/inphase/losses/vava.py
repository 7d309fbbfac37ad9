"""VAVA: optimal transport between videos, with two priors on the order and a virtual frame (CVPR 2022).

From "Learning to Align Sequential Actions in the Wild" (Liu et al.). With d(i, j) = |i/M − j/N| the distance to the
diagonal, o(i, j) = |j − argmin_j c(i, j)|/N that to the nearest frame, and h = √(1/M² + 1/N²):

    Q = φ N(d/h; δ) + (1 − φ) N(o/h; δ)           S = λ₁ (φ/(d² + 1) + (1 − φ)/(o² + 1))
    T = argmin Σ T (c − S) + λ₂ KL(T ‖ Q),        c(i, j) = ‖x_i − y_j‖²,  ζ where either frame is virtual
    L = Σ T c + ½ (C(x) + C(y)) + w I(x, y)
    C(x) = mean_ij max(0, margin − D_ij) where |s_i − s_j| > window,   D_ij / ((i − j)² + 1)  elsewhere
    I(x, y) = −log softmax of the mean distances to the best and the worst match of each frame, at the worst

`transport` finds the plan in which each frame carries the same mass, by Sinkhorn's iterations:
T = diag(e^f) Q e^(−c/ε) diag(e^g), with f and g fitted to the rows and the columns in turn, here as logarithms, so that
no kernel underflows. In batches, on any device, differentiable through the iterations; O(BMN) time and memory each.
"""

import math

import torch
from torch import Tensor

from inphase.align.cost import (
    Lengths,
    last_frame,
    no_autocast,
    require_alike,
    require_temperature,
    require_tensor,
    single_precision,
    squared_euclidean_cost,
    valid,
)
from inphase.losses.loss import Loss, Pairs, Sequences, masked_mean, normalize, pair_up, require_choice

NOTHING = -1e30  # the logarithm of 0, finite: the difference of two is 0


class VAVA(Loss):
    """Lower the cost of the transport between two videos, in which some frames may have no counterpart.

    Constants of the released code: 20 iterations, λ₁ = 1 · (M + N), λ₂ = 0.1 · MN/4, ζ 0.5, δ 2, a virtual frame as far
    as 1.5 · 5 frames, margin 2, window 15, w 10⁻⁴ and temperature 0.5 of I. Different here: φ falls there from 0.999
    with the root of the step, to 0.68 after 150,000, and is a constant; the transport cost is there divided by (MN)²,
    which leaves it without influence, and not at all here; best and worst matches are those of the plan; embeddings are
    normalized, distances are sums over dimensions and the window counts frames of the video.

    Frames: the plain draw. Pairs: as GTA's. The plan is differentiated through its iterations.
    """

    def __init__(
        self,
        *,
        consistency: float = 0.9,
        order_weight: float = 1.0,
        entropy: float = 0.1,
        virtual_cost: float = 0.5,
        width: float = 2.0,
        virtual_distance: float = 5.0,
        align_weight: float = 1.0,
        contrast_weight: float = 0.5,
        margin: float = 2.0,
        window: float = 15.0,
        inter_weight: float = 1e-4,
        temperature: float = 0.5,
        iterations: int = 20,
        pairs: Pairs = "anchor",
    ) -> None:
        """Check and store the settings; `consistency` is φ, `order_weight` λ₁, `entropy` λ₂ and `virtual_cost` ζ."""
        super().__init__()
        require_choice("pairs", pairs, ("anchor", "all"))
        if not 0 <= consistency <= 1:
            raise ValueError(f"consistency must lie between 0 and 1, got {consistency}")
        settings = {"entropy": entropy, "width": width, "margin": margin, "temperature": temperature}
        for name, value in settings.items():
            require_temperature(name, value)
        weights = {"order_weight": order_weight, "virtual_cost": virtual_cost, "window": window}
        weights |= {"align_weight": align_weight, "contrast_weight": contrast_weight, "inter_weight": inter_weight}
        for name, value in weights.items():
            require_temperature(name, value, zero=True)
        self.consistency, self.order_weight, self.entropy = consistency, order_weight, entropy
        self.virtual_cost, self.width, self.virtual_distance = virtual_cost, width, virtual_distance
        self.align_weight, self.contrast_weight, self.inter_weight = align_weight, contrast_weight, inter_weight
        self.margin, self.window, self.temperature, self.iterations = margin, window, temperature, iterations
        self.pairs: Pairs = pairs

    def forward(self, sequences: Sequences) -> dict[str, Tensor]:
        """Score a group: `loss`, and its terms `align`, `contrast` and `inter`, means over pairs."""
        first, second = pair_up(sequences, self.pairs)
        values, real = normalize(sequences.clean), sequences.mask
        x_lengths, y_lengths = sequences.lengths[first], sequences.lengths[second]
        with no_autocast(values):
            cost = squared_euclidean_cost(values[first], values[second], x_lengths=x_lengths, y_lengths=y_lengths)
            plan = self.plan(cost, x_lengths, y_lengths)
            align = (plan * add_virtual_frame(cost, price=self.virtual_cost)).sum((1, 2)).mean()
            within = self.contrast(values, sequences)
            contrast = (within[first] + within[second]).mean()
            inter = self._inter(plan[:, 1:, 1:], cost, real[first], real[second]).mean()
            loss = self.align_weight * align + self.contrast_weight * contrast + self.inter_weight * inter
        return {"loss": loss, "align": align, "contrast": contrast, "inter": inter}

    def plan(self, cost: Tensor, x_lengths: Tensor, y_lengths: Tensor) -> Tensor:
        """Transport x to y by cost [P, M, N], with a virtual frame before both: [P, M + 1, N + 1]."""
        whole = add_virtual_frame(cost, price=self.virtual_cost)
        m, n = x_lengths + 1, y_lengths + 1
        diagonal, nearest = order_distances(whole, x_lengths=m, y_lengths=n)
        rows, columns = (size.to(cost.device, cost.dtype, non_blocking=True)[:, None, None] for size in (m, n))
        away = torch.full_like(whole, 1.5) * 2 * self.virtual_distance / (rows + columns)
        virtual = torch.zeros(whole.shape[1:], dtype=torch.bool, device=cost.device)
        virtual[0, 1:], virtual[1:, 0] = True, True
        d, o = (gap.where(~virtual, away).square() for gap in (diagonal, nearest))
        phi, variance = self.consistency, self.width**2 * (1 / rows.square() + 1 / columns.square())
        bells = phi * torch.exp(-d / (2 * variance)) + (1 - phi) * torch.exp(-o / (2 * variance))
        order = phi / (d + 1) + (1 - phi) / (o + 1)
        # The code's weights grow with the sequences: ε with M N / 4 and the order's with M + N, without virtual frames.
        epsilon = self.entropy * (rows - 1) * (columns - 1) / 4
        kernel = (self.order_weight * (rows + columns - 2) * order - whole) / epsilon
        prior = (bells / (self.width * math.sqrt(2 * math.pi))).clamp_min(1e-30).log()
        return transport(-kernel, epsilon=1.0, log_prior=prior, iterations=self.iterations, x_lengths=m, y_lengths=n)

    def contrast(self, values: Tensor, sequences: Sequences) -> Tensor:
        """Keep distant frames of each sequence apart and near ones together: C of each, [K]."""
        steps = torch.arange(values.shape[1], device=values.device)
        near = 1 / ((steps[:, None] - steps).square() + 1).to(values.dtype)
        gap = (sequences.frames[:, :, None] - sequences.frames[:, None, :]).abs()
        distance = squared_euclidean_cost(values, values)
        cells = (self.margin - distance).clamp_min(0).where(gap > self.window, near * distance)
        both = sequences.mask[:, :, None] & sequences.mask[:, None, :]
        return masked_mean(cells.flatten(1), both.flatten(1))

    def _inter(self, plan: Tensor, cost: Tensor, x_real: Tensor, y_real: Tensor) -> Tensor:
        """Prefer the best match of each frame to its worst, [P]."""
        rows, columns = x_real[:, :, None], y_real[:, None, :]
        plan, means = plan.detach(), []
        for fill in (float("-inf"), float("inf")):  # the best, then the worst
            known = plan.where(rows & columns, fill)
            j = known.argmax(2) if fill < 0 else known.argmin(2)
            i = known.argmax(1) if fill < 0 else known.argmin(1)
            of_x, of_y = cost.gather(2, j[:, :, None])[:, :, 0], cost.gather(1, i[:, None, :])[:, 0]
            means.append((masked_mean(of_x, x_real) + masked_mean(of_y, y_real)) / self.temperature)
        return -torch.stack(means, 1).log_softmax(1)[:, 1]


def transport(
    cost: Tensor,
    *,
    epsilon: float = 0.1,
    log_prior: Tensor | None = None,
    iterations: int = 20,
    x_lengths: Lengths = None,
    y_lengths: Lengths = None,
) -> Tensor:
    """Find the plan of least cost [B, M, N] between frames of equal mass, [B, M, N]; it sums to 1, 0 in the padding.

    `log_prior` [B, M, N] is log Q, uniform by default; `epsilon` the weight of the divergence from it. Rows are exact,
    columns as exact as the `iterations` make them.

    >>> transport(torch.tensor([[[0.0, 1.0], [1.0, 0.0]]]), epsilon=0.01).round(decimals=3)
    tensor([[[0.5000, 0.0000],
             [0.0000, 0.5000]]])
    """
    require_tensor("cost", cost, "[B, M, N]")
    require_temperature("epsilon", epsilon)
    if iterations < 1:
        raise ValueError(f"need at least 1 iteration, got {iterations}")
    if log_prior is not None:
        require_tensor("log_prior", log_prior, "[B, M, N]")
        require_alike("cost", cost, "log_prior", log_prior)
    (cost,) = single_precision(cost)
    (batch, m, n), device = cost.shape, cost.device
    rows = valid(x_lengths, name="x_lengths", batch=batch, size=m, device=device)
    columns = valid(y_lengths, name="y_lengths", batch=batch, size=n, device=device)
    real = _both(rows, columns)
    with no_autocast(cost):
        kernel = -cost / epsilon if log_prior is None else log_prior - cost / epsilon
        kernel = kernel if real is None else kernel.where(real, NOTHING)
        log_a = -(last_frame(x_lengths, batch=batch, size=m, device=device) + 1).to(cost.dtype).log()[:, None]
        log_b = -(last_frame(y_lengths, batch=batch, size=n, device=device) + 1).to(cost.dtype).log()[:, None]
        g = cost.new_zeros(batch, n)
        for _ in range(iterations):
            f = _silence(log_a - torch.logsumexp(kernel + g[:, None, :], 2), rows)
            g = _silence(log_b - torch.logsumexp(kernel + f[:, :, None], 1), columns)
        f = _silence(log_a - torch.logsumexp(kernel + g[:, None, :], 2), rows)
        return (kernel + f[:, :, None] + g[:, None, :]).exp()


def order_distances(cost: Tensor, *, x_lengths: Lengths = None, y_lengths: Lengths = None) -> tuple[Tensor, Tensor]:
    """Measure how far each pair of frames is from the diagonal, and from the cheapest frame of y for x_i; [B, M, N].

    In fractions of a sequence: |i/M − j/N| and |j − argmin_j c(i, j)| / N, with frames counted from 1.
    """
    require_tensor("cost", cost, "[B, M, N]")
    batch, m, n = cost.shape
    columns = valid(y_lengths, name="y_lengths", batch=batch, size=n, device=cost.device)
    sizes = [
        (last_frame(lengths, batch=batch, size=size, device=cost.device)[:, None] + 1).to(cost.dtype)
        for lengths, size in ((x_lengths, m), (y_lengths, n))
    ]
    i, j = ((torch.arange(1, size + 1, device=cost.device) / each) for size, each in zip((m, n), sizes, strict=True))
    known = cost.detach() if columns is None else cost.detach().where(columns[:, None], float("inf"))
    nearest = (known.argmin(2) + 1) / sizes[1]  # [B, M]
    return (i[:, :, None] - j[:, None, :]).abs(), (j[:, None, :] - nearest[:, :, None]).abs()


def add_virtual_frame(cost: Tensor, *, price: float) -> Tensor:
    """Put a frame before both sequences that matches every frame for `price`: [B, M, N] → [B, M + 1, N + 1]."""
    require_tensor("cost", cost, "[B, M, N]")
    require_temperature("price", price, zero=True)
    return torch.nn.functional.pad(cost, (1, 0, 1, 0), value=price)


def _both(rows: Tensor | None, columns: Tensor | None) -> Tensor | None:
    if rows is None:
        return None if columns is None else columns[:, None, :]
    return rows[:, :, None] if columns is None else rows[:, :, None] & columns[:, None, :]


def _silence(potential: Tensor, real: Tensor | None) -> Tensor:
    return potential if real is None else potential.where(real, 0)
