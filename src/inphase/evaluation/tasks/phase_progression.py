"""Phase progression: how well a linear regression on the embedding predicts the time since each key event (R²).

For each phase but the last, y_t = (t − t_i)/T where t_i is the last frame of phase i and T the length of the video, as
in TCC. One linear regression for each, fitted on the training videos of the action, scored by R² on the pooled frames
of its test videos; mean over events, then over actions. Videos that lack a phase are left out of its regression.
"""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from inphase.evaluation.embedded_videos import EmbeddedVideo, NotApplicableError, all_constant, by_action, with_phases
from inphase.evaluation.scores import Score, mean


def phase_progression(train: Sequence[EmbeddedVideo], test: Sequence[EmbeddedVideo]) -> list[Score]:
    """Regress the time since each key event linearly on the embedding.

    Metric: `r2`, by action. Undefined if all embeddings of an action are one vector.
    """
    examples = by_action(with_phases(train, role="training"))
    found: dict[str, float] = {}
    for action, videos in by_action(with_phases(test, role="test")).items():
        score = _score(examples[action], videos) if action in examples else None
        if score is not None:
            found[action] = score
    if not found:
        raise NotApplicableError("no action has two phases in both training and test videos")
    over_actions = Score("phase_progression", "r2", mean(found.values()))
    return [
        over_actions,
        *(Score("phase_progression", "r2", score, action=action) for action, score in found.items()),
    ]


def _score(train: Sequence[EmbeddedVideo], test: Sequence[EmbeddedVideo]) -> float | None:
    """Average R² over the key events of one action; None without any."""
    last = max(int(item.phases.max()) for item in (*train, *test))
    if all_constant(train) or all_constant(test):
        return float("nan")
    scores = []
    for phase in range(last):
        fit, score = _examples(train, phase), _examples(test, phase)
        if fit is not None and score is not None:
            scores.append(_r2(*fit, *score))
    return mean(scores) if scores else None


def _examples(videos: Sequence[EmbeddedVideo], phase: int) -> tuple[NDArray[np.float64], NDArray[np.float64]] | None:
    """Gather the frames of the videos that have a phase, and their time since its last frame."""
    found = [item for item in videos if (item.phases == phase).any()]
    if not found:
        return None
    times = [(item.frames - (item.first + np.flatnonzero(item.phases == phase)[-1])) / item.length for item in found]
    return np.concatenate([item.values for item in found]).astype(np.float64), np.concatenate(times)


def _r2(
    x: NDArray[np.float64], y: NDArray[np.float64], test_x: NDArray[np.float64], test_y: NDArray[np.float64]
) -> float:
    center, level = x.mean(0), y.mean()
    weights, *_ = np.linalg.lstsq(x - center, y - level, rcond=None)
    rest = test_y - ((test_x - center) @ weights + level)
    return float(1 - np.square(rest).sum() / np.square(test_y - test_y.mean()).sum())
