"""Plots for people: alignments, embeddings, phases, few-shot, reliability and learning curves; needs inphase[plot].

Each function draws into `axes`, or into a figure of its own, and returns the axes: `plot_alignment(alignment).figure.
savefig("alignment.png")`. Colors are those of Okabe and Ito, which color-blind readers can tell apart; lines differ
in their dashes as well.
"""

import json
from collections.abc import Mapping, Sequence
from importlib.util import find_spec
from itertools import cycle, islice
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import ArrayLike, NDArray

from inphase.align import Alignment
from inphase.apps.labels import Segment
from inphase.evaluation import Score
from inphase.evaluation.tasks.few_shot import draw_few_shot
from inphase.playback import Phase, principal_curves

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = [
    "plot_alignment",
    "plot_embeddings",
    "plot_few_shot",
    "plot_metrics",
    "plot_phases",
    "plot_reliability",
]

COLORS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
DASHES = ("-", "--", ":", "-.")
# Light colors for areas with dark text on them.
AREAS = ("#BFDDF0", "#F6CDB3", "#B5E2D5", "#F0D5E4", "#F8E0B0", "#D6EDFA", "#D9D9D9")


def plot_alignment(
    alignment: Alignment,
    *,
    x_times: ArrayLike | None = None,
    y_times: ArrayLike | None = None,
    names: tuple[str, str] = ("x", "y"),
    axes: "Axes | None" = None,
) -> "Axes":
    """Draw the cost matrix, dark where frames match, and the path through it.

    Axes are in frames, or in seconds where both `x_times` and `y_times` are given. An alignment without a cost matrix
    (`match_many` keeps it with `keep_cost=True`) shows its path alone.
    """
    axes = _new_axes(axes, size=(5, 4.6))
    m, n = alignment.shape
    rows, columns = (np.arange(m), np.arange(n)) if x_times is None or y_times is None else (x_times, y_times)
    rows, columns = np.asarray(rows, np.float64), np.asarray(columns, np.float64)
    if rows.shape != (m,) or columns.shape != (n,):
        raise ValueError(f"times must be [{m}] and [{n}], got {list(rows.shape)} and {list(columns.shape)}")
    if alignment.cost_matrix is not None:
        # Costs are skewed: their ranks show the valley of the path at any scale.
        costs = np.asarray(alignment.cost_matrix, np.float64)
        ranks = np.searchsorted(np.sort(costs, axis=None), costs) / max(costs.size - 1, 1)
        mesh = axes.pcolormesh(columns, rows, ranks, cmap="cividis", shading="nearest", rasterized=True)
        axes.figure.colorbar(mesh, ax=axes, label="cost: share of pairs that cost less")
    axes.plot(columns[alignment.path[:, 1]], rows[alignment.path[:, 0]], color="#D55E00", linewidth=2, label="path")
    unit = "frames" if x_times is None or y_times is None else "seconds"
    axes.set(xlabel=f"{names[1]}, {unit}", ylabel=f"{names[0]}, {unit}")
    axes.set(xlim=(columns[0], columns[-1]), ylim=(rows[0], rows[-1]))
    axes.legend(loc="lower right")
    return axes


def plot_embeddings(
    embeddings: Sequence[ArrayLike],
    *,
    times: Sequence[ArrayLike] | None = None,
    names: Sequence[str] = (),
    dimensions: int = 2,
    axes: "Axes | None" = None,
) -> "Axes":
    """Draw embeddings [T, D] of several videos over time: their common principal components.

    Videos differ in color, components in dashes. Curves of aligned videos coincide: give `times` on one clock.
    """
    axes = _new_axes(axes, size=(6, 3.6))
    labels = _names(names, len(embeddings))
    curves = principal_curves(embeddings, dimensions=dimensions)
    for number, (label, color, curve) in enumerate(zip(labels, _repeat(COLORS, len(curves)), curves, strict=True)):
        clock = np.arange(len(curve)) if times is None else np.asarray(times[number], np.float64)
        for part, dashes in zip(range(curve.shape[1]), _repeat(DASHES, curve.shape[1]), strict=True):
            axes.plot(clock, curve[:, part], color=color, linestyle=dashes, label=label if part == 0 else None)
    axes.set(
        xlabel="frames" if times is None else "seconds", ylabel=f"principal component{'s' if dimensions > 1 else ''}"
    )
    axes.grid(alpha=0.3)
    axes.legend()
    return axes


def plot_phases(videos: Mapping[str, Sequence[Phase | Segment]], *, axes: "Axes | None" = None) -> "Axes":
    """Draw a timeline of labeled phases for each video, equal labels in equal colors."""
    axes = _new_axes(axes, size=(7, 0.9 + 0.5 * len(videos)))
    labels = list(dict.fromkeys(span.label for spans in videos.values() for span in spans))
    colors = dict(zip(labels, _repeat(AREAS, len(labels)), strict=True))
    last = max((span.end for spans in videos.values() for span in spans), default=1.0)
    for row, spans in enumerate(videos.values()):
        for span in spans:
            width = span.end - span.start
            axes.barh(row, width, left=span.start, height=0.7, color=colors[span.label], edgecolor="white")
            if width > 0.011 * last * len(span.label):  # a label that does not fit is in the legend alone
                axes.text(span.start + width / 2, row, span.label, ha="center", va="center", fontsize=8, clip_on=True)
    axes.set_yticks(range(len(videos)), list(videos))
    axes.invert_yaxis()
    axes.set(xlabel="seconds", xlim=(0, last))
    handles = [axes.barh(0, 0, color=colors[label], label=label) for label in labels]
    axes.legend(handles=handles, loc="lower center", bbox_to_anchor=(0.5, 1), ncols=min(6, len(labels)), fontsize=8)
    return axes


def plot_few_shot(curves: Mapping[str, Sequence[Score]], *, axes: "Axes | None" = None) -> "Axes":
    """Draw accuracy over labeled videos, a curve with its 95 % interval for each label: Figure 4 of the paper.

    `curves` holds the scores of the task `few_shot` by label, such as `{"mine": inphase.evaluate(run).scores}`.
    """
    return draw_few_shot(curves, _new_axes(axes, size=(6, 4)), colors=_repeat(COLORS, len(curves)))


def plot_reliability(
    confidences: ArrayLike, correct: ArrayLike, *, bins: int = 10, axes: "Axes | None" = None
) -> "Axes":
    """Draw how often labels of each confidence are right: on the diagonal a confidence is a probability.

    `confidences` [N] from 0 to 1, `correct` [N] booleans. Bins have about equal numbers of labels; bars show 95 %
    intervals (Wilson). The title states the expected calibration error.
    """
    axes = _new_axes(axes, size=(4.4, 4.2))
    chances, right = np.asarray(confidences, np.float64), np.asarray(correct, bool)
    if chances.shape != right.shape or chances.ndim != 1 or len(chances) == 0:
        raise ValueError(f"give as many confidences as results, got {list(chances.shape)} and {list(right.shape)}")
    if not ((chances >= 0) & (chances <= 1)).all():
        raise ValueError(f"confidences must be in [0, 1], got {chances.min():g} to {chances.max():g}")
    edges = np.unique(np.quantile(chances, np.linspace(0, 1, bins + 1)[1:-1]))  # equal confidences share a bin
    places = np.searchsorted(edges, chances, side="right")
    parts = [np.flatnonzero(places == place) for place in np.unique(places)]
    mean = np.array([chances[part].mean() for part in parts])
    share = np.array([right[part].mean() for part in parts])
    sizes = np.array([len(part) for part in parts])
    below, above = _wilson(share, sizes)
    axes.plot([0, 1], [0, 1], color="#888888", linestyle=":", label="a probability")
    widths = np.clip([share - below, above - share], 0, None)
    axes.errorbar(mean, share, yerr=widths, marker="o", capsize=3, color=COLORS[0], label="labels")
    error = float((np.abs(mean - share) * sizes).sum() / sizes.sum())
    axes.set(xlabel="confidence", ylabel="share of labels that are right", xlim=(-0.02, 1.02), ylim=(-0.02, 1.02))
    axes.set_title(f"expected calibration error {error:.3f}", fontsize=10)
    axes.grid(alpha=0.3)
    axes.legend(loc="upper left")
    return axes


def plot_metrics(runs: Mapping[str, Path | str], *, metric: str = "loss", axes: "Axes | None" = None) -> "Axes":
    """Draw a metric by training step for each run folder: a learning curve."""
    axes = _new_axes(axes, size=(6, 3.6))
    styles = zip(_repeat(COLORS, len(runs)), _repeat(DASHES, len(runs)), strict=True)
    for (name, folder), (color, dashes) in zip(runs.items(), styles, strict=True):
        file = Path(folder) / "metrics.jsonl"
        rows = [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines() if line.strip()]
        found = [(row["step"], row[metric]) for row in rows if row.get(metric) is not None]
        if not found:
            known = sorted({key for row in rows for key in row} - {"step"})
            raise ValueError(f"{file} has no metric {metric!r}: use one of {', '.join(known)}")
        steps, values = zip(*found, strict=True)
        axes.plot(steps, values, color=color, linestyle=dashes, label=name)
    axes.set(xlabel="step", ylabel=metric)
    axes.grid(alpha=0.3)
    axes.legend()
    return axes


def _new_axes(axes: "Axes | None", *, size: tuple[float, float]) -> "Axes":
    """Return the axes given, or those of a new figure, which belongs to no window."""
    if axes is not None:
        return axes
    if find_spec("matplotlib") is None:
        raise ModuleNotFoundError("plots need matplotlib: pip install 'inphase[plot]'")
    from matplotlib.figure import Figure

    return Figure(figsize=size, layout="constrained").add_subplot()


def _names(names: Sequence[str], count: int) -> Sequence[str]:
    if names and len(names) != count:
        raise ValueError(f"give {count} names, one for each video, got {len(names)}")
    return names or [f"video {number}" for number in range(1, count + 1)]


def _repeat(values: Sequence[str], count: int) -> list[str]:
    return list(islice(cycle(values), count))


def _wilson(share: NDArray[np.float64], count: NDArray[np.int64]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return the lower and upper bound of Wilson's 95 % interval for the share of successes in `count` trials."""
    z = 1.959964
    middle = (share + z**2 / (2 * count)) / (1 + z**2 / count)
    half = z / (1 + z**2 / count) * np.sqrt(share * (1 - share) / count + z**2 / (4 * count**2))
    return middle - half, middle + half
