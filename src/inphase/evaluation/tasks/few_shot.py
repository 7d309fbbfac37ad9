"""Few-shot classification: how well phases are classified when only k videos of each action, or class, are labeled.

An episode draws k training videos of each action and classifies every labeled frame of the test videos, as
`phase_classification` does. Mean over episodes, and half the width of its 95 % interval (Student's t).

The paper labels "a few videos per class" of FineGym101. A video there is an event, which shows some of its classes:
with per="class" an episode takes videos in random order and keeps one if a class of it has fewer than k so far.
Where every video shows all phases of its action, both counts are the same.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Literal

import numpy as np
from scipy.stats import t as student

from inphase.evaluation.embedded_videos import EmbeddedVideo, all_constant, by_action, with_phases
from inphase.evaluation.scores import Score, select
from inphase.evaluation.tasks.phases import LIMIT, Features, Kernel, accuracy, labeled_frames
from inphase.progress import Progress, ignore_progress

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

Shots = int | Literal["half", "all"]
SHOTS: tuple[Shots, ...] = (1, 2, 3, 5, 10, "half", "all")
EPISODES = {"half": 10, "all": 1}  # a number of videos has 50 episodes, as in TCC


def few_shot(
    train: Sequence[EmbeddedVideo],
    test: Sequence[EmbeddedVideo],
    *,
    shots: Sequence[Shots] = SHOTS,
    episodes: int = 50,
    per: Literal["action", "class"] = "action",
    kernel: Kernel = "linear",
    features: Features = "raw",
    seed: int = 0,
    limit: int = LIMIT,
    progress: Progress | None = None,
) -> list[Score]:
    """Classify frames from few labeled videos.

    Metrics, by number of shots (setting, see `shots_name`): `accuracy`, the mean over episodes; `interval`, half the
    width of its 95 % interval, from two episodes on; `videos`, the mean number of labeled videos of an action. k counts
    videos `per` action, or per class of the label set. Shots that no action or class has enough videos for are left
    out; one with fewer videos gives all it has. "half" has at most 10 episodes, "all" has 1.
    """
    if episodes < 1 or any(isinstance(k, int) and k < 1 for k in shots):
        raise ValueError(f"need episodes ≥ 1 and shots ≥ 1, got {episodes} and {list(shots)}")
    if per not in ("action", "class"):
        raise ValueError(f"per must be 'action' or 'class', got {per!r}")
    actions = list(by_action(with_phases(train, role="training")).values())
    asked = with_phases(test, role="test")
    most = max(_count_videos(videos, per=per) for videos in actions)
    names: dict[tuple[str, int], int] = {}
    unknown = labeled_frames(asked, names)
    collapsed = all_constant([item for videos in actions for item in videos]) or all_constant(asked)
    wanted = [k for k in shots if isinstance(k, str) or k < most]
    counts = [min(episodes, EPISODES.get(str(k), episodes)) for k in wanted]
    report, score = progress or ignore_progress, partial(Score, "few_shot")
    accuracies, intervals, videos_used = [], [], []
    for place, (k, count) in enumerate(zip(wanted, counts, strict=True)):
        sizes = [_size(k, len(videos)) for videos in actions]
        found, drawn_videos = [], []
        for episode in range(count):
            report("few_shot", sum(counts[:place]) + episode, sum(counts))
            rng = np.random.default_rng([seed, sum(sizes), episode])
            drawn = [
                videos[at]
                for videos, size in zip(actions, sizes, strict=True)
                for at in _draw(videos, k, size=size, per=per, rng=rng)
            ]
            drawn_videos.append(len(drawn) / len(actions))
            known = labeled_frames(drawn, names)
            found.append(
                float("nan") if collapsed else accuracy(known, unknown, kernel=kernel, features=features, limit=limit)
            )
        accuracies.append(score("accuracy", float(np.mean(found)), setting=shots_name(k)))
        videos_used.append(score("videos", float(np.mean(drawn_videos)), setting=shots_name(k)))
        if len(found) > 1:
            intervals.append(score("interval", half_width(found), setting=shots_name(k)))
    report("few_shot", sum(counts), sum(counts))
    return [*accuracies, *intervals, *videos_used]


def shots_name(shots: Shots) -> str:
    """Name a number of labeled videos, as "k=5"."""
    return f"k={shots}"


def plot_few_shot(curves: Mapping[str, Sequence[Score]]) -> "Figure":
    """Draw accuracy over labeled videos into a figure."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(6, 4), layout="constrained")
    draw_few_shot(curves, figure.add_subplot())
    return figure


def draw_few_shot(
    curves: Mapping[str, Sequence[Score]], axes: "Axes", *, colors: Sequence[str] | None = None
) -> "Axes":
    """Draw accuracy over labeled videos, a curve with its interval for each label: Figure 4 of the paper."""
    ticks: set[float] = set()
    for number, (label, scores) in enumerate(curves.items()):
        scores = [score for score in scores if score.task == "few_shot"]
        accuracies, widths = _by_setting(scores, "accuracy"), _by_setting(scores, "interval")
        videos_used = _by_setting(scores, "videos")
        points = sorted(((videos_used[name], name) for name in accuracies), key=lambda point: point[0])
        axes.errorbar(
            [videos for videos, _ in points],
            [100 * accuracies[name] for _, name in points],
            yerr=[100 * np.nan_to_num(widths.get(name, 0)) for _, name in points],
            marker="o",
            markersize=4,
            capsize=3,
            label=label,
            color=None if colors is None else colors[number],
        )
        ticks |= {videos for videos, _ in points}
    axes.set(xscale="log", xlabel="labeled videos of each action", ylabel="frames classified correctly, %")
    axes.set_xticks(sorted(ticks), [f"{tick:g}" for tick in sorted(ticks)])
    axes.minorticks_off()
    axes.grid(alpha=0.3)
    axes.legend()
    return axes


def _by_setting(scores: Sequence[Score], metric: str) -> dict[str | None, float]:
    return {score.setting: score.value for score in select(scores, metric=metric)}


def _size(shots: Shots, videos: int) -> int:
    if isinstance(shots, int):
        return min(shots, videos)
    return videos if shots == "all" else max(1, videos // 2)


def _classes(video: EmbeddedVideo) -> set[int]:
    """List the phases that a video shows."""
    return {int(phase) for phase in np.unique(video.phases) if phase >= 0}


def _count_videos(videos: Sequence[EmbeddedVideo], *, per: str) -> int:
    """Count the videos of an action, or of the class that most of them show."""
    if per == "action":
        return len(videos)
    return max(Counter(phase for video in videos for phase in _classes(video)).values())


def _draw(videos: Sequence[EmbeddedVideo], shots: Shots, *, size: int, per: str, rng: np.random.Generator) -> list[int]:
    """Draw videos of an action, by number: `size` of them, or k of each of its classes."""
    order = rng.permutation(len(videos)).tolist()
    if per == "action" or not isinstance(shots, int):
        return sorted(order[:size])
    shown: Counter[int] = Counter()
    kept = []
    for at in order:
        classes = _classes(videos[at])
        if any(shown[phase] < shots for phase in classes):
            kept.append(at)
            shown.update(classes)
    return sorted(kept)


def half_width(scores: Sequence[float]) -> float:
    """Return half the width of the 95 % interval of a mean, by Student's t."""
    return float(student.ppf(0.975, len(scores) - 1) * np.std(scores, ddof=1) / np.sqrt(len(scores)))
