"""Tasks without labels: Kendall's τ, and the health of embeddings.

Kendall's τ: whether the nearest neighbors of a video's frames in another video are in temporal order.

For each ordered pair of an action's videos, every `stride`-th frame of one is matched with the nearest of every
`stride`-th of the other, and the matched indices are correlated with the order of time (τ-b). Mean over pairs, then
over actions. If all neighbors are one frame, τ-b is undefined: such pairs are left out of the mean, as in the released
code, and their fraction is reported as `undefined_pairs`; without any other pair τ is undefined (NaN).

τ needs no labels and rewards anything that grows with time, whether it is the action or not: compare it with the
controls of `embedded_videos.controls`, position alone and the clamped context alone. `tau_unclamped` leaves out the
frames whose context is clamped, in both videos; little remains of short videos, and the match of a frame near the cut
may have been cut off. `tau_unclamped_queries` leaves them out of the first video only: the neighbors of frames with a
whole context among all frames of the other video.

Health of embeddings: whether they have collapsed, to a point, to a line, or to a point for each video.

τ is independent of scale and does not show a collapse. With u the unit vectors of all frames, ū their mean:

    mean_cosine     of two different frames, over all pairs; 1: a point
    variance        mean ‖u − ū‖², from 0 to 1
    effective_rank  exp of the entropy of the centered vectors' singular values (Roy and Vetterli, 2007), 1 to D
    within_videos   the share of the variance within videos, the rest being between them; 0: a point for each video
"""

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray

from inphase.evaluation.embedded_videos import EmbeddedVideo, all_constant, require_two
from inphase.evaluation.neighbors_numba import over_neighbors, tau_b
from inphase.evaluation.scores import Score, mean
from inphase.models.embedding import unit_rows

Distance = Literal["squared_euclidean", "cosine"]

# The settings of published evaluations. For unit vectors both distances give the same neighbors.
SETTINGS: Mapping[str, Mapping[str, Any]] = {
    "released": {"stride": 5, "distance": "squared_euclidean"},  # GTA's script, for every data set
    # By the comments in their configurations, which differ.
    "tcc": {"stride": 5, "distance": "squared_euclidean"},  # on PennAction
    "tcc_pouring": {"stride": 2, "distance": "squared_euclidean"},
    "carl": {"stride": 2, "distance": "squared_euclidean"},  # on PennAction
    "carl_pouring": {"stride": 5, "distance": "squared_euclidean"},
    "every_frame": {"stride": 1, "distance": "squared_euclidean"},
}


def kendall_tau(
    train: Sequence[EmbeddedVideo],
    test: Sequence[EmbeddedVideo],
    *,
    setting: str = "released",
    stride: int | None = None,
    distance: Distance | None = None,
    device: torch.device | str = "cpu",
) -> list[Score]:
    """Correlate the order of neighbors with time, in all pairs of each action. `train` is not used.

    `setting` names a stride and a distance; `stride` and `distance` override it. Metrics: `tau` and `tau_unclamped`, by
    action; `tau_unclamped_queries` and `undefined_pairs`. O(N² D) time for the N frames of an action, on `device`.
    """
    if setting not in SETTINGS:
        raise ValueError(f"no setting {setting!r} of Kendall's tau: choose one of {', '.join(SETTINGS)}")
    stride = SETTINGS[setting]["stride"] if stride is None else stride
    chosen = SETTINGS[setting]["distance"] if distance is None else distance
    if stride < 1 or chosen not in ("squared_euclidean", "cosine"):
        raise ValueError(f"need stride ≥ 1 and distance 'squared_euclidean' or 'cosine', got {stride} and {chosen!r}")
    taus_by_action: dict[str, float] = {}
    unclamped: dict[str, float] = {}
    unclamped_queries: list[float] = []
    undefined: list[float] = []
    for action, videos in require_two(test).items():
        rows = [item.values[::stride] for item in videos]
        kept = [~item.clamped[::stride] for item in videos]
        taus, taus_of_kept = _taus_of(rows, kept, distance=chosen, device=device)
        taus_by_action[action] = mean(taus)
        unclamped_queries.append(mean(taus_of_kept))
        undefined.append(float(np.isnan(taus).mean()))
        rows = [item.values[~item.clamped][::stride] for item in videos]
        unclamped[action] = mean(pairwise_tau([part for part in rows if len(part)], distance=chosen, device=device))
    score = partial(Score, "kendall_tau")
    return [
        score("tau", mean(taus_by_action.values())),
        score("tau_unclamped", mean(unclamped.values())),
        score("tau_unclamped_queries", mean(unclamped_queries)),
        score("undefined_pairs", float(np.mean(undefined))),
        *(score("tau", value, action=action) for action, value in taus_by_action.items()),
        *(score("tau_unclamped", value, action=action) for action, value in unclamped.items()),
    ]


def pairwise_tau(
    videos: Sequence[NDArray[np.float32]],
    *,
    distance: Distance = "squared_euclidean",
    device: torch.device | str = "cpu",
) -> NDArray[np.float64]:
    """Return τ-b of every ordered pair of different videos [M, D], row by row: [V (V − 1)], NaN where undefined."""
    nothing = [np.zeros(len(rows), np.bool_) for rows in videos]
    return _taus_of(videos, nothing, distance=distance, device=device)[0]


def _taus_of(
    videos: Sequence[NDArray[np.float32]],
    kept: Sequence[NDArray[np.bool_]],
    *,
    distance: Distance,
    device: torch.device | str,
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return `pairwise_tau` of all frames of the first video, and of its `kept` frames [M]."""
    if len(videos) < 2:
        return np.empty(0), np.empty(0)
    if distance == "cosine":  # half the squared distance of unit vectors
        videos = [unit_rows(rows) for rows in videos]
    sizes = np.array([len(rows) for rows in videos])

    def correlate(video: int, found: NDArray[np.int32]) -> NDArray[np.float64]:
        return np.stack([tau_b(found, sizes), tau_b(np.ascontiguousarray(found[:, kept[video]]), sizes)])

    taus = np.stack(over_neighbors(videos, correlate, device=device), axis=1)
    others = ~np.eye(len(videos), dtype=np.bool_)
    return taus[0][others], taus[1][others]


def health(train: Sequence[EmbeddedVideo], test: Sequence[EmbeddedVideo]) -> list[Score]:
    """Measure how much of their space the embeddings use; `train` is not used. O(N D²) time."""
    count = sum(len(item) for item in test)
    total = sum(item.values.sum(0, dtype=np.float64) for item in test)
    center = total / count
    spread = np.zeros((len(center), len(center)))
    within = 0.0
    for item in test:
        rows = item.values.astype(np.float64)
        spread += (rows - center).T @ (rows - center)
        within += float(np.square(rows - rows.mean(0)).sum())
    variance = float(np.trace(spread)) / count
    # Σ over pairs of u·v = ‖Σ u‖² − Σ ‖u‖²
    squares = variance * count + count * float(center @ center)
    mean_cosine = (float(total @ total) - squares) / (count * (count - 1)) if count > 1 else float("nan")
    collapsed = all_constant(test)
    found = {
        "mean_cosine": mean_cosine,
        "variance": variance,
        "effective_rank": float("nan") if collapsed else _effective_rank(spread),
        "within_videos": float("nan") if collapsed else within / (variance * count),
    }
    return [Score("health", metric, value) for metric, value in found.items()]


def _effective_rank(spread: np.ndarray) -> float:
    singular = np.sqrt(np.maximum(np.linalg.eigvalsh(spread), 0))
    share = singular / singular.sum()
    share = share[share > 0]
    return float(np.exp(-(share * np.log(share)).sum()))
