"""The plots of studies, and the figures that need no training: 1, 2, 3 and 7.

Plots are left out where matplotlib is not installed.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import wraps
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.special import lambertw

from inphase.align import min_gamma_penalty, smooth_min_penalty
from inphase.align.cost import contrastive_costs
from inphase.align.matching import match
from inphase.align.recursion import accumulate
from inphase.data import finegym, stage_videos
from inphase.data.frame_source import open_frame_source
from inphase.evaluation import select
from inphase.evaluation.embedded_videos import EmbeddedVideo, embed_videos
from inphase.evaluation.report import Figure, Number, Report, Table, render_figure, versions
from inphase.evaluation.tasks.few_shot import plot_few_shot
from inphase.models import load_shipped
from inphase.reproduction.results import LINEAR, Results
from inphase.reproduction.study import Column, StudyRow

if TYPE_CHECKING:
    from matplotlib.axes import Axes


TITLE = "The smooth minima (Figure 3)"
FAR_COST = 1e6
CASES = ("r3 = r2", "r3 → ∞")
# The supplement: of N costs the largest penalty is x − 1, in γ, where x − 1 = (N − 1) e^(−x): W((N − 1)/e) by Lambert.
LARGEST = {case: float(lambertw((count - 1) / np.e).real) for case, count in zip(CASES, (3, 2), strict=True)}


def report_minima(root: Path | None = None) -> Report:
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


ALIGNED = "Two videos aligned (Figures 1 and 2)"


def report_alignment(root: Path | None = None) -> Report:
    """Align two drawn people at one action with the shipped pose encoder: frames, tables and cycle."""
    videos = stage_videos.load(split="test", actions=["pitch"], videos=2, level="plain", size=128)
    encoder = load_shipped("pose")
    source = open_frame_source(encoder, videos)
    x, y = embed_videos(encoder, source.videos, read=source.read, frame_count=source.frame_count)
    tables, cycle = alignment_tables(torch.from_numpy(x.values), torch.from_numpy(y.values))
    found = match(x.values, y.values, cost="contrastive", beta=encoder.beta).frame_map()
    straight = np.linspace(0, len(y) - 1, len(x))
    assert x.progress is not None
    assert y.progress is not None
    rows = tuple(
        (name, Number(100 * float(np.abs(x.progress - np.interp(frames, np.arange(len(y)), y.progress)).mean())))
        for name, frames in (("aligned", found), (LINEAR, straight))
    )
    own = float(np.abs(cycle.argmax(1).numpy() - np.arange(len(x))).mean())
    note = f"A frame of the first video returns from the second {own:.1f} frames from where it left, on average."
    drawn = (_draw_matches(x, y, found), _draw_tables(tables, cycle)) if find_spec("matplotlib") is not None else ()
    head = ("", "error, % of the action")
    about = {"command": "inphase reproduce alignment"}
    return Report(ALIGNED, (Table(ALIGNED, head, rows, note=note),), drawn, about=about, versions=versions())


def alignment_tables(
    x: torch.Tensor, y: torch.Tensor, *, gamma: float = 0.1, beta: float = 0.1, alpha: float = 1.0
) -> tuple[torch.Tensor, torch.Tensor]:
    """Compute the tables of both directions [2, M, N] and the probabilities of the cycle x → y → x [M, M]."""
    costs = contrastive_costs(x[None], y[None], beta=beta)[:, 0]
    tables = accumulate(costs, kind="smooth", gamma=gamma)
    there, back = torch.softmax(-tables[0] / alpha, 1), torch.softmax(-tables[1].mT / alpha, 1)
    return tables, there @ back


def _draw_matches(x: EmbeddedVideo, y: EmbeddedVideo, found: NDArray[np.float64]) -> Figure:
    from matplotlib.figure import Figure as Drawing

    assert x.video.render is not None
    assert y.video.render is not None
    clips, frames = (x.video.render(), y.video.render()), np.linspace(0, len(x) - 1, 8).round().astype(int)
    figure = Drawing(figsize=(12, 3.4), layout="constrained")
    for row, (clip, shown) in enumerate(zip(clips, (frames, found[frames].round().astype(int)), strict=True)):
        for column, frame in enumerate(shown):
            axes = figure.add_subplot(2, len(frames), 1 + row * len(frames) + column)
            axes.imshow(clip.frames[frame])
            axes.set_title(f"frame {frame}", fontsize="small")
            axes.axis("off")
    return render_figure(figure, title="Frames of one video, and the matched ones of the other")


def _draw_tables(tables: torch.Tensor, cycle: torch.Tensor) -> Figure:
    from matplotlib.figure import Figure as Drawing

    figure = Drawing(figsize=(12, 4), layout="constrained")
    shown = (("R, first → second", tables[0]), ("R, second → first", tables[1]), ("cycle", cycle))
    for axes, (name, values) in zip(figure.subplots(1, 3), shown, strict=True):
        drawn = axes.imshow(values.numpy(), cmap="Blues" if name == "cycle" else "viridis", aspect="auto")
        figure.colorbar(drawn, ax=axes)
        axes.set(title=name, xlabel="frame", ylabel="frame of the first video")
    caption = "The accumulated cost of both directions, and the probability that a frame returns to each frame."
    return render_figure(figure, title="The two tables and the cycle", caption=caption)


ORDERED = "FineGym's clips in one order of sets (Figure 7)"


def report_order(root: Path | None = None, *, events: int = 4) -> Report:
    """Show how clips of FineGym's events are sorted into the prototype order; needs the lists of Gym99 alone."""
    if root is None:
        raise ValueError("the order of sets is that of FineGym's training list: name its folder with --root ROOT")
    categories = finegym.read_categories(root / "gym99_categories.txt")
    lists = sorted(root.glob("gym99_train_element_*.txt"))
    if not lists:
        raise FileNotFoundError(f"no gym99_train_element_<version>.txt in {root}: download it from FineGym's site")
    elements = finegym.read_elements(lists[-1], categories=categories, split="train")
    order = finegym.prototype_order(elements)
    performed: dict[str, dict[str, list[int]]] = {name: {} for name in order}
    for element in sorted(elements, key=lambda each: (each.event_id, each.start, each.end)):
        performed[element.category.event].setdefault(element.event_id, []).append(element.category.set)
    rows = []
    for event, found in performed.items():
        moved = sum(sets != sorted(sets, key=order[event].index) for sets in found.values())
        rows.append((event, " ".join(map(str, order[event])), str(len(found)), Number(100 * moved / len(found))))
    drawn = (_draw_order(performed, order, events=events),) if find_spec("matplotlib") is not None else ()
    head = ("", "prototype order of sets", "events", "reordered, %")
    about = {"command": "inphase reproduce order --root ROOT"}
    return Report(ORDERED, (Table(ORDERED, head, tuple(rows)),), drawn, about=about, versions=versions())


def _draw_order(
    performed: Mapping[str, Mapping[str, list[int]]], order: Mapping[str, tuple[int, ...]], *, events: int
) -> Figure:
    from matplotlib.figure import Figure as Drawing

    shown = max(performed, key=lambda event: len(order[event]))
    longest = sorted(performed[shown].values(), key=len, reverse=True)[:events]
    figure = Drawing(figsize=(9, 0.7 + 0.7 * events), layout="constrained")
    for axes, title in zip(figure.subplots(1, 2), ("as performed", "in the prototype order"), strict=True):
        for row, sets in enumerate(longest):
            listed = sets if title == "as performed" else sorted(sets, key=order[shown].index)
            colors = [f"C{order[shown].index(part)}" for part in listed]
            axes.barh([row] * len(listed), 1, left=range(len(listed)), color=colors, edgecolor="white")
            for place, part in enumerate(listed):
                axes.annotate(str(part), (place + 0.5, row), ha="center", va="center", fontsize="x-small")
        axes.set(title=title, yticks=[], xticks=[])
        axes.spines[:].set_visible(False)
    return render_figure(figure, title=f"Sets of {shown}", caption="A row for each event, a box for each clip.")


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
    """Draw τ, which rewards order in time, against the error of nearest neighbors, which viewers notice."""
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
