"""Plots: what is drawn is what was given."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch

from inphase import match
from inphase.evaluation import Score
from inphase.playback import Phase, principal_curves
from inphase.plot import (
    plot_alignment,
    plot_embeddings,
    plot_few_shot,
    plot_metrics,
    plot_phases,
    plot_reliability,
)

figure = pytest.importorskip("matplotlib.figure")


def walk(length: int) -> torch.Tensor:
    moments = torch.linspace(0, 2, length)
    return torch.stack([torch.sin(3 * moments), torch.cos(3 * moments), torch.sin(7 * moments)], dim=1)


def test_the_path_is_drawn_in_seconds_over_its_costs() -> None:
    alignment = match(walk(20), walk(30))
    x_times, y_times = np.arange(20) / 10, np.arange(30) / 10
    axes = plot_alignment(alignment, x_times=x_times, y_times=y_times, names=("student", "pro"))
    (line,) = axes.get_lines()
    drawn = np.asarray(line.get_xydata())
    assert np.allclose(drawn[:, 0], y_times[alignment.path[:, 1]])
    assert np.allclose(drawn[:, 1], x_times[alignment.path[:, 0]])
    assert (axes.get_xlabel(), axes.get_ylabel()) == ("pro, seconds", "student, seconds")
    (mesh,) = axes.collections
    shown, costs = np.asarray(mesh.get_array()).ravel(), np.asarray(alignment.cost_matrix).ravel()
    assert shown[costs.argmin()] == 0
    assert shown[costs.argmax()] == 1


def test_an_alignment_without_costs_shows_its_path_and_wrong_times_are_refused() -> None:
    alignment = match(walk(20), walk(30))
    bare = plot_alignment(type(alignment)(alignment.path, alignment.cost, alignment.shape))
    assert not bare.collections
    assert bare.get_xlabel() == "y, frames"
    with pytest.raises(ValueError, match=r"times must be \[20\] and \[30\], got \[5\] and \[30\]"):
        plot_alignment(alignment, x_times=np.arange(5), y_times=np.arange(30))


def test_embeddings_are_drawn_by_their_common_components_into_given_axes() -> None:
    axes = figure.Figure().add_subplot()
    x, y = walk(20).numpy(), walk(30).numpy()
    assert plot_embeddings([x, y], times=[np.arange(20) / 10, np.arange(30) / 15], axes=axes) is axes
    lines = axes.get_lines()
    assert len(lines) == 4
    assert np.allclose(lines[2].get_ydata(), principal_curves([x, y], dimensions=2)[1][:, 0])
    assert lines[0].get_color() == lines[1].get_color() != lines[2].get_color()
    legend = axes.get_legend()
    assert legend is not None
    assert [text.get_text() for text in legend.get_texts()] == ["video 1", "video 2"]
    with pytest.raises(ValueError, match="give 2 names"):
        plot_embeddings([x, y], names=["one"])


def test_equal_phases_have_equal_colors_on_every_timeline() -> None:
    videos = {
        "a": [Phase(0, 1, "swing"), Phase(1, 1.01, "hit")],
        "b": [Phase(0, 0.5, "swing"), Phase(0.5, 2, "hit")],
    }
    axes = plot_phases(videos)
    bars = [bar for bar in axes.patches if bar.get_width() > 0]  # type: ignore[attr-defined]
    assert [round(bar.get_width(), 6) for bar in bars] == [1, 0.01, 0.5, 1.5]  # type: ignore[attr-defined]
    colors = [bar.get_facecolor() for bar in bars]
    assert colors[0] == colors[2] != colors[1] == colors[3]
    assert [text.get_text() for text in axes.texts] == ["swing", "swing", "hit"]  # the short one is in the legend alone
    assert [label.get_text() for label in axes.get_yticklabels()] == ["a", "b"]


def test_few_shot_curves_rise_with_labeled_videos() -> None:
    scores = [
        Score("few_shot", metric, value, setting=f"k={k}")
        for k, accuracy in ((5, 0.8), (1, 0.6))
        for metric, value in (("accuracy", accuracy), ("interval", 0.05), ("videos", float(k)))
    ]
    axes = plot_few_shot({"mine": [*scores, Score("kendall_tau", "tau", 0.9)]})
    (container,) = axes.containers
    assert np.allclose(container[0].get_xydata(), [[1, 60], [5, 80]])
    assert [label.get_text() for label in axes.get_xticklabels()] == ["1", "5"]


def test_reliability_of_probabilities_lies_on_the_diagonal() -> None:
    rng = np.random.default_rng(0)
    confidences = rng.uniform(0, 1, 4000)
    right = rng.uniform(0, 1, 4000) < confidences
    axes = plot_reliability(confidences, right, bins=8)
    drawn = np.asarray(axes.containers[0][0].get_xydata())
    assert len(drawn) == 8
    assert np.abs(drawn[:, 0] - drawn[:, 1]).max() < 0.06
    assert float(axes.get_title().split()[-1]) < 0.03
    overconfident = plot_reliability(np.full(100, 0.9), np.arange(100) < 50)
    assert overconfident.get_title() == "expected calibration error 0.400"
    with pytest.raises(ValueError, match=r"in \[0, 1\], got 0 to 1.5"):
        plot_reliability([0, 1.5], [True, False])


def test_learning_curves_come_from_the_run_folder(tmp_path: Path) -> None:
    rows = [{"step": 10, "loss": 3.0, "tau": None}, {"step": 20, "loss": 2.0, "tau": 0.5}]
    (tmp_path / "metrics.jsonl").write_text("\n".join(map(json.dumps, rows)), encoding="utf-8")
    (line,) = plot_metrics({"mine": tmp_path}).get_lines()
    assert np.allclose(line.get_xydata(), [[10, 3], [20, 2]])
    (line,) = plot_metrics({"mine": tmp_path}, metric="tau").get_lines()
    assert np.allclose(line.get_xydata(), [[20, 0.5]])
    with pytest.raises(ValueError, match="no metric 'cosine': use one of loss, tau"):
        plot_metrics({"mine": tmp_path}, metric="cosine")
