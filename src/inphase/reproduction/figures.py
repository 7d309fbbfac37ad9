"""The plots of studies, and Figure 3, which needs no data. Plots are left out where matplotlib is not installed."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import wraps
from importlib.util import find_spec
from typing import TYPE_CHECKING

import numpy as np
import torch
from scipy.special import lambertw

from inphase.align import min_gamma_penalty, smooth_min_penalty
from inphase.evaluation import select
from inphase.evaluation.report import Figure, Number, Report, Table, render_figure, versions
from inphase.evaluation.tasks.few_shot import plot_few_shot
from inphase.reproduction.results import LINEAR, Results
from inphase.reproduction.study import Column, StudyRow

if TYPE_CHECKING:
    from matplotlib.axes import Axes


TITLE = "The smooth minima (Figure 3)"
FAR_COST = 1e6
CASES = ("r3 = r2", "r3 → ∞")
# The supplement: of N costs the largest penalty is x − 1, in γ, where x − 1 = (N − 1) e^(−x): W((N − 1)/e) by Lambert.
LARGEST = {case: float(lambertw((count - 1) / np.e).real) for case, count in zip(CASES, (3, 2), strict=True)}


def report_minima() -> Report:
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
    """Return Δ and both penalties, in units of γ."""
    delta = torch.linspace(0, 6, 6001, dtype=torch.float64)
    third = delta if case == CASES[0] else torch.full_like(delta, FAR_COST)
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
    return render_figure(figure, title="Penalties over the distance of the runner-up", caption=caption)


def _draw_contours() -> Figure:
    from matplotlib.figure import Figure as Drawing

    side = np.linspace(0, 5, 201)
    second, third = np.meshgrid(side, side)
    costs = torch.from_numpy(np.stack([np.zeros_like(second), second, third], -1))
    figure = Drawing(figsize=(9, 4.6), layout="constrained")
    kinds = (("smoothMin", smooth_min_penalty, "Blues"), ("min$^γ$", min_gamma_penalty, "Reds_r"))
    for axes, (name, penalty, color_map) in zip(figure.subplots(1, 2, sharey=True), kinds, strict=True):
        values = penalty(costs, gamma=1).numpy()
        filled = axes.contourf(second, third, values, 12, cmap=color_map)
        axes.contour(second, third, values, 12, colors="k", linewidths=0.3)
        figure.colorbar(filled, ax=axes)
        axes.set(title=name, xlabel="r2 − r1, in γ", aspect="equal")
    figure.axes[0].set_ylabel("r3 − r1, in γ")
    return render_figure(
        figure, title="Penalties between the extremes", caption="The curves above are the diagonal and the upper edge."
    )


OURS, PAPER, GREY = "#2f6fde", "#b9bec9", "#8a8f99"
Draw = Callable[[Results], tuple[Figure, ...]]


def needs_matplotlib(draw: Draw) -> Draw:
    """Make a function return no figures where matplotlib is not installed."""

    @wraps(draw)
    def drawn(results: Results) -> tuple[Figure, ...]:
        return draw(results) if find_spec("matplotlib") is not None else ()

    return drawn


@needs_matplotlib
def draw_bars(results: Results) -> tuple[Figure, ...]:
    """Draw every column that the paper has numbers for, ours beside the paper's."""
    return tuple(_bars(results, column) for column in results.columns if column.paper and _drawn(results, column))


@needs_matplotlib
def draw_bars_and_errors(results: Results) -> tuple[Figure, ...]:
    """Draw the bars, and τ against the error."""
    return (*draw_bars(results), *draw_scatter(results))


def _bars(results: Results, column: Column) -> Figure:
    from matplotlib.figure import Figure as Drawing

    rows = _drawn(results, column)
    figure = Drawing(figsize=(7, 0.9 + 0.48 * len(rows)), layout="constrained")
    axes = figure.add_subplot()
    places = np.arange(len(rows))
    for place, (row, number) in zip(places, rows, strict=True):
        spread = 0 if number.deviation is None else number.deviation
        axes.barh(place - 0.19, number.mean, 0.36, color=OURS, xerr=spread, ecolor="#17376f", capsize=2)
        axes.annotate(f"{number.mean:.1f}", (number.mean + spread, place - 0.19), (4, 0), **_WORDS)  # type: ignore[arg-type]
        known = row.published.get(column.paper)
        if known is not None:
            axes.barh(place + 0.19, known, 0.36, color=PAPER)
            axes.annotate(f"{known:.1f}", (known, place + 0.19), (4, 0), color=GREY, **_WORDS)  # type: ignore[arg-type]
    control = results.control("untrained", column)
    if isinstance(control, Number) and not np.isnan(control.mean):
        axes.axvline(control.mean, color="#d2691e", linestyle="--", linewidth=1, label="untrained")
    axes.barh([0], [0], color=OURS, label="here")
    if any(column.paper in row.published for row, _ in rows):
        axes.barh([0], [0], color=PAPER, label=f"paper, {column.paper}")
    axes.set_yticks(places, [row.label for row, _ in rows])
    axes.invert_yaxis()
    axes.set(xlabel=column.head)
    axes.margins(x=0.12)
    _finish(axes)
    return render_figure(figure, title=column.head, caption=results.study.differences(results.setup))


_WORDS = {"textcoords": "offset points", "va": "center", "fontsize": "small"}


@needs_matplotlib
def draw_scatter(results: Results) -> tuple[Figure, ...]:
    """Draw τ, which rewards order in time, against the error of nearest neighbors, which people see."""
    from matplotlib.figure import Figure as Drawing

    tau = next((column for column in results.columns if column.metric == "tau"), None)
    error = next((column for column in results.columns if column.setting == "nearest"), None)
    if tau is None or error is None:
        return ()
    points = [(row.label, results.cell(row, tau), results.cell(row, error), OURS) for row in results.rows]
    blind = [("untrained", "#d2691e"), ("time only", GREY), ("clamped only", GREY)]
    points += [(name, results.control(name, tau), results.control(name, error), color) for name, color in blind]
    figure = Drawing(figsize=(7, 4.2), layout="constrained")
    axes = figure.add_subplot()
    shown = []
    for label, x, y, color in points:
        if isinstance(x, Number) and isinstance(y, Number) and not np.isnan([x.mean, y.mean]).any():
            axes.errorbar(x.mean, y.mean, y.deviation, x.deviation, "o", color=color, capsize=2, markersize=5)
            shown.append((label, x.mean, y.mean, color))
    stretched = results.control(LINEAR, error)
    if isinstance(stretched, Number):
        axes.axhline(stretched.mean, color=GREY, linestyle=":", label=LINEAR)
    axes.set(xlabel=tau.head, ylabel=error.head)
    axes.set_ylim(bottom=0)
    axes.margins(x=0.2)
    axes.autoscale_view()
    _name_points(axes, shown)
    _finish(axes)
    caption = "Right and below is better. Position alone has a high τ and the error of linear stretch."
    return (render_figure(figure, title="Order in time, and error", caption=caption),)


def _name_points(axes: "Axes", points: Sequence[tuple[str, float, float, str]]) -> None:
    """Write names beside points, shifted where they would overlap."""
    taken: list[tuple[float, float]] = []
    for label, x, y, color in points:
        across, up = axes.transData.transform((x, y))
        lift = 5.0
        while any(abs(across - other) < 130 and abs(up + lift - height) < 12 for other, height in taken):
            lift -= 3
        taken.append((across, up + lift))
        axes.annotate(label, (x, y), (7, lift), textcoords="offset points", fontsize="small", color=color)


@needs_matplotlib
def draw_few_shot(results: Results) -> tuple[Figure, ...]:
    """Draw Figure 4: accuracy over labeled videos, means over seeds."""
    curves = {}
    for row in results.trained:
        found = [results.measured(row, results.columns[0], None, seed) for seed in range(results.setup.seeds)]
        seeds = [select(item.scores, task="few_shot", control=None) for item in found if item is not None]
        if seeds and all(seeds):
            curves[row.label] = [
                replace(scores[0], value=float(np.mean([score.value for score in scores])))
                for scores in zip(*seeds, strict=True)
            ]
    if not curves:
        return ()
    return (render_figure(plot_few_shot(curves), title="Few-shot classification", caption=results.study.about),)


@needs_matplotlib
def draw_heat_map(results: Results) -> tuple[Figure, ...]:
    """Draw the scores of one task as colored cells."""
    from matplotlib.figure import Figure as Drawing

    columns = [column for column in results.columns if column.task == results.columns[0].task]
    columns = [column for column in columns if column.scale == results.columns[0].scale and _drawn(results, column)]
    rows = results.trained
    if not columns or not rows:
        return ()
    values = np.array([[_mean(results, row, column) for column in columns] for row in rows])
    figure = Drawing(figsize=(2 + 1.1 * len(columns), 1.2 + 0.42 * len(rows)), layout="constrained")
    axes = figure.add_subplot()
    axes.imshow(values, aspect="auto", cmap="Blues", vmin=np.nanmin(values) - 10, vmax=np.nanmax(values) + 10)
    for (y, x), value in np.ndenumerate(values):
        axes.annotate(f"{value:.1f}", (x, y), ha="center", va="center", fontsize="small")
    axes.set_xticks(range(len(columns)), [column.head.replace(", ", "\n") for column in columns], fontsize="small")
    axes.set_yticks(range(len(rows)), [row.label for row in rows])
    axes.tick_params(length=0)
    axes.spines[:].set_visible(False)
    return (render_figure(figure, title=results.study.title, caption=results.study.about),)


def _mean(results: Results, row: StudyRow, column: Column) -> float:
    cell = results.cell(row, column)
    return cell.mean if isinstance(cell, Number) else float("nan")


def _drawn(results: Results, column: Column) -> Sequence[tuple[StudyRow, Number]]:
    """List the rows that have a defined score."""
    cells = [(row, results.cell(row, column)) for row in results.rows]
    return [(row, cell) for row, cell in cells if isinstance(cell, Number) and not np.isnan(cell.mean)]


def _finish(axes: "Axes") -> None:
    """Add a grid and a legend, and remove the frame."""
    axes.grid(alpha=0.25)
    axes.set_axisbelow(True)
    axes.spines[["top", "right"]].set_visible(False)
    if axes.get_legend_handles_labels()[0]:
        axes.legend(
            fontsize="small", frameon=False, loc="lower right", bbox_to_anchor=(1, 1), ncols=3, borderaxespad=0.2
        )
