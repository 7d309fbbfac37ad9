"""Few-shot classification: how well phases are told apart when k videos of each action are labelled.

An episode draws k training videos of each action and classifies every labelled frame of the test videos, as
`phase_classification` does. Mean over episodes, and half the width of its 95 % interval (Student's t).
"""

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Literal

import numpy as np
from scipy.stats import t as student

from inphase.evaluation.classifier import LIMIT, Features, Kernel, accuracy, labelled_frames
from inphase.evaluation.embedded import Embedded, all_constant, by_action, with_phases

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Shots = int | Literal["half", "all"]
SHOTS: tuple[Shots, ...] = (1, 2, 3, 5, 10, "half", "all")
EPISODES = {"half": 10, "all": 1}  # of any number of videos: 50, as TCC


def few_shot(
    train: Sequence[Embedded],
    test: Sequence[Embedded],
    *,
    shots: Sequence[Shots] = SHOTS,
    episodes: int = 50,
    kernel: Kernel = "linear",
    features: Features = "raw",
    seed: int = 0,
    limit: int = LIMIT,
    progress: Callable[[str, float], None] | None = None,
) -> dict[str, float]:
    """Classify from few labelled videos; see above.

    Keys: k=SHOTS the mean accuracy, interval/k=SHOTS the half width of its 95 % interval (of two episodes at least),
    videos/k=SHOTS how many videos of each action that is on average. A number of shots that no action has is left out;
    an action with fewer videos gives all it has. "half" has at most 10 episodes, "all" has 1.
    """
    if episodes < 1 or any(isinstance(k, int) and k < 1 for k in shots):
        raise ValueError(f"need episodes ≥ 1 and shots ≥ 1, got {episodes} and {list(shots)}")
    actions = list(by_action(with_phases(train, role="training")).values())
    asked = with_phases(test, role="test")
    most = max(len(videos) for videos in actions)
    names: dict[tuple[str, int], int] = {}
    unknown = labelled_frames(asked, names)
    collapsed = all_constant([item for videos in actions for item in videos]) or all_constant(asked)
    numbers: dict[str, float] = {}
    wanted = [k for k in shots if isinstance(k, str) or k < most]
    for place, k in enumerate(wanted):
        sizes = [_size(k, len(videos)) for videos in actions]
        scores = []
        for episode in range(min(episodes, EPISODES.get(str(k), episodes))):
            if progress is not None:
                progress(f"k={k}", (place + episode / episodes) / len(wanted))
            rng = np.random.default_rng([seed, sum(sizes), episode])
            drawn = [
                videos[at]
                for videos, size in zip(actions, sizes, strict=True)
                for at in sorted(rng.permutation(len(videos))[:size].tolist())
            ]
            known = labelled_frames(drawn, names)
            score = accuracy(known, unknown, kernel=kernel, features=features, limit=limit) if not collapsed else np.nan
            scores.append(score)
        numbers |= {f"k={k}": float(np.mean(scores)), f"videos/k={k}": float(np.mean(sizes))}
        if len(scores) > 1:
            numbers[f"interval/k={k}"] = half_width(scores)
    order = ("k=", "interval/", "videos/")
    return {name: number for first in order for name, number in numbers.items() if name.startswith(first)}


def plot_few_shot(curves: Mapping[str, Mapping[str, float]]) -> "Figure":
    """Draw accuracy over labelled videos, a curve with its interval for each method: Figure 4 of the paper."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(6, 4), layout="constrained")
    axes = figure.add_subplot()
    for label, numbers in curves.items():
        names = [name for name in numbers if name.startswith("k=")]
        order = sorted(names, key=lambda name: numbers[f"videos/{name}"])
        videos = [numbers[f"videos/{name}"] for name in order]
        scores = [100 * numbers[name] for name in order]
        widths = [100 * np.nan_to_num(numbers.get(f"interval/{name}", 0)) for name in order]
        axes.errorbar(videos, scores, yerr=widths, marker="o", markersize=4, capsize=3, label=label)
    axes.set(xscale="log", xlabel="labelled videos of each action", ylabel="frames classified rightly, %")
    ticks = sorted({numbers[name] for numbers in curves.values() for name in numbers if name.startswith("videos/")})
    axes.set_xticks(ticks, [f"{tick:g}" for tick in ticks])
    axes.minorticks_off()
    axes.grid(alpha=0.3)
    axes.legend()
    return figure


def _size(shots: Shots, videos: int) -> int:
    if isinstance(shots, int):
        return min(shots, videos)
    return videos if shots == "all" else max(1, videos // 2)


def half_width(scores: Sequence[float]) -> float:
    """Give half the width of the 95 % interval of a mean, by Student's t."""
    return float(student.ppf(0.975, len(scores) - 1) * np.std(scores, ddof=1) / np.sqrt(len(scores)))
