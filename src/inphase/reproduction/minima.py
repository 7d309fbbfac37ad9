"""Figure 3: what smoothMin and min^γ add to the minimum of three costs."""

from importlib.util import find_spec

import numpy as np
import torch
from scipy.special import lambertw

from inphase.align import min_gamma_penalty, smooth_min_penalty
from inphase.evaluation.report import Figure, Number, Report, Table, picture, versions

TITLE = "The smooth minima (Figure 3)"
FAR = 1e6
CASES = ("r3 = r2", "r3 → ∞")
# The supplement: of N costs the largest penalty is x − 1, in γ, where x − 1 = (N − 1) e^(−x): W((N − 1)/e) by Lambert.
LARGEST = {case: float(lambertw((count - 1) / np.e).real) for case, count in zip(CASES, (3, 2), strict=True)}


def minima() -> Report:
    """Report the penalties d = s(r) − min(r) of three costs r1 ≤ r2 ≤ r3, in units of γ."""
    rows = []
    for case in CASES:
        delta, smooth, soft = _curves(case)
        peak = int(smooth.argmax())
        rows.append(
            (
                case,
                Number(float(smooth[peak])),
                Number(LARGEST[case]),
                Number(float(delta[peak])),
                Number(float(soft[0])),
            )
        )
    head = ("", "largest d of smoothMin", "supplement's bound", "at Δ", "least d of min^γ")
    return Report(
        title=TITLE,
        tables=(
            Table(TITLE, head, tuple(rows), note="In units of γ, Δ = r2 − r1.", published=("supplement's bound",)),
        ),
        figures=_figures() if find_spec("matplotlib") is not None else (),
        notes=(
            "smoothMin adds a penalty that is largest about 1.5 γ from a tie: it rewards a clear winner, or a tie. "
            "min^γ is lowest at a tie: it rewards many paths of equal cost.",
        ),
        about={"command": "inphase reproduce minima"},
        versions=versions(),
    )


def _curves(case: str) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Give Δ, and both penalties, in units of γ."""
    delta = torch.linspace(0, 6, 6001, dtype=torch.float64)
    third = delta if case == CASES[0] else torch.full_like(delta, FAR)
    costs = torch.stack([torch.zeros_like(delta), delta, third], 1)
    return delta, smooth_min_penalty(costs, gamma=1), min_gamma_penalty(costs, gamma=1)


def _figures() -> tuple[Figure, ...]:
    return _draw_curves(), _draw_contours()


def _draw_curves() -> Figure:
    from matplotlib.figure import Figure as Drawing

    figure = Drawing(figsize=(7, 4.2), layout="constrained")
    axes = figure.add_subplot()
    axes.axhline(0, color="grey", linewidth=0.8)
    for case, line in zip(CASES, ("-", "--"), strict=True):
        delta, smooth, soft = _curves(case)
        axes.plot(delta, smooth, color="C0", linestyle=line, label=f"smoothMin, {case}")
        axes.plot(delta, soft, color="C3", linestyle=line, label=f"min$^γ$, {case}")
        peak = int(smooth.argmax())
        axes.plot(delta[peak], smooth[peak], "o", color="C0")
    axes.axvline(1.5, color="grey", linestyle=":", linewidth=1)
    axes.annotate("watershed ≈ 1.5 γ", (1.6, -0.95), color="grey")
    axes.set(xlabel="Δ = r2 − r1, in γ", ylabel="penalty d = s(r) − min(r), in γ", xlim=(0, 6), ylim=(-1.15, 0.6))
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(loc="lower right", fontsize="small", frameon=False)
    caption = "As in the paper: the two extremes of the third cost."
    return picture(figure, title="Penalties over the distance of the runner-up", caption=caption)


def _draw_contours() -> Figure:
    from matplotlib.figure import Figure as Drawing

    side = np.linspace(0, 5, 201)
    second, third = np.meshgrid(side, side)
    costs = torch.from_numpy(np.stack([np.zeros_like(second), second, third], -1))
    figure = Drawing(figsize=(9, 4.6), layout="constrained")
    kinds = (("smoothMin", smooth_min_penalty, "Blues"), ("min$^γ$", min_gamma_penalty, "Reds_r"))
    for axes, (name, penalty, colours) in zip(figure.subplots(1, 2, sharey=True), kinds, strict=True):
        values = penalty(costs, gamma=1).numpy()
        filled = axes.contourf(second, third, values, 12, cmap=colours)
        axes.contour(second, third, values, 12, colors="k", linewidths=0.3)
        figure.colorbar(filled, ax=axes)
        axes.set(title=name, xlabel="r2 − r1, in γ", aspect="equal")
    figure.axes[0].set_ylabel("r3 − r1, in γ")
    return picture(
        figure, title="Penalties between the extremes", caption="The curves above are the diagonal and the upper edge."
    )
