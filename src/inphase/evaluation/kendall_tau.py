"""Kendall's τ: whether the nearest neighbours of a video's frames in another video come in order.

For each ordered pair of an action's videos, every `stride`-th frame of one is matched with the nearest of every
`stride`-th of the other, and the matched indices are correlated with the order of time (τ-b). Mean over pairs, then
over actions. Where all neighbours are one frame τ-b is undefined: such pairs are left out of the mean, as in the
released code, and their fraction is reported as `undefined_pairs`; where nothing is left, τ is undefined (NaN).

τ needs no labels and rewards whatever grows with time, be it the action or not: `controls` says what position alone and
the ends of the context alone score. `tau/nc` leaves out the frames whose context is clamped, in both videos; of short
ones little is left, and the match of a frame near the cut may be what was cut off. `tau/nc_whole` leaves them out of
the first video alone: the neighbours of frames with a whole context among all frames of the other.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray

from inphase.evaluation.embedded import Embedded, mean, require_two
from inphase.evaluation.neighbours import over_neighbours
from inphase.evaluation.neighbours_numba import tau_b
from inphase.media.sampling import Context, context_frames
from inphase.models import Embedding

Distance = Literal["squared_euclidean", "cosine"]

# What others evaluate with. Of unit vectors both distances have the same neighbours.
SETTINGS: Mapping[str, Mapping[str, Any]] = {
    "released": {"stride": 5, "distance": "squared_euclidean"},  # GTA's script, whatever the collection
    "tcc": {"stride": 2, "distance": "squared_euclidean"},  # on PennAction, as does CARL
    "tcc_pouring": {"stride": 5, "distance": "squared_euclidean"},
    "every_frame": {"stride": 1, "distance": "squared_euclidean"},
}


def kendall_tau(
    train: Sequence[Embedded],
    test: Sequence[Embedded],
    *,
    setting: str = "released",
    stride: int | None = None,
    distance: Distance | None = None,
    device: torch.device | str = "cpu",
) -> dict[str, float]:
    """Correlate the order of neighbours with time, in all pairs of each action; see above. `train` is not used.

    `setting` names a stride and a distance; either can be given by itself. Keys: `tau`, `tau/nc`, `tau/nc_whole`,
    `undefined_pairs`, and `tau/ACTION`, `nc/ACTION` for each. O(N² D) time for the N frames of an action, in float64,
    on `device`.
    """
    if setting not in SETTINGS:
        raise ValueError(f"no setting {setting!r} of Kendall's tau: choose one of {', '.join(SETTINGS)}")
    stride = SETTINGS[setting]["stride"] if stride is None else stride
    chosen = SETTINGS[setting]["distance"] if distance is None else distance
    if stride < 1 or chosen not in ("squared_euclidean", "cosine"):
        raise ValueError(f"need stride ≥ 1 and distance 'squared_euclidean' or 'cosine', got {stride} and {chosen!r}")
    whole: dict[str, float] = {}
    inner: dict[str, float] = {}
    sought_in_whole: list[float] = []
    undefined: list[float] = []
    for action, videos in require_two(test).items():
        rows = [item.values[::stride] for item in videos]
        kept = [~item.clamped[::stride] for item in videos]
        taus, taus_of_kept = _taus_of(rows, kept, distance=chosen, device=device)
        whole[action] = mean(taus)
        sought_in_whole.append(mean(taus_of_kept))
        undefined.append(float(np.isnan(taus).mean()))
        rows = [item.values[~item.clamped][::stride] for item in videos]
        inner[action] = mean(pairwise_tau([part for part in rows if len(part)], distance=chosen, device=device))
    return {
        "tau": mean(whole.values()),
        "tau/nc": mean(inner.values()),
        "tau/nc_whole": mean(sought_in_whole),
        "undefined_pairs": float(np.mean(undefined)),
        **{f"tau/{action}": value for action, value in whole.items()},
        **{f"nc/{action}": value for action, value in inner.items()},
    }


def pairwise_tau(
    videos: Sequence[NDArray[np.float32]],
    *,
    distance: Distance = "squared_euclidean",
    device: torch.device | str = "cpu",
) -> NDArray[np.float64]:
    """Give τ-b of every ordered pair of different videos [M, D], row by row: [V (V − 1)], NaN where undefined."""
    nothing = [np.zeros(len(rows), np.bool_) for rows in videos]
    return _taus_of(videos, nothing, distance=distance, device=device)[0]


def _taus_of(
    videos: Sequence[NDArray[np.float32]],
    kept: Sequence[NDArray[np.bool_]],
    *,
    distance: Distance,
    device: torch.device | str,
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Give `pairwise_tau` of all frames of the first video, and of those of it that are `kept` [M]."""
    if len(videos) < 2:
        return np.empty(0), np.empty(0)
    if distance == "cosine":  # half the squared distance of unit vectors
        videos = [_unit(rows) for rows in videos]
    sizes = np.array([len(rows) for rows in videos])

    def correlate(video: int, found: NDArray[np.int32]) -> NDArray[np.float64]:
        return np.stack([tau_b(found, sizes), tau_b(np.ascontiguousarray(found[:, kept[video]]), sizes)])

    taus = np.stack(over_neighbours(videos, correlate, device=device), axis=1)
    others = ~np.eye(len(videos), dtype=np.bool_)
    return taus[0][others], taus[1][others]


def controls(test: Sequence[Embedded]) -> dict[str, list[Embedded]]:
    """Replace the embeddings by what has not looked at the action, to be evaluated beside them.

    "time only": the position t/length, as an angle on a quarter circle. "clamped only": for each frame of the context,
    how far from t it lies once those beyond the ends are clamped; the same for all frames with a whole context. An
    untrained network is the third control: that is an encoder of its own.
    """
    return {
        "time only": [replace(item, embedding=_on(item, _position(item))) for item in test],
        "clamped only": [replace(item, embedding=_on(item, _clamping(item))) for item in test],
    }


def _position(item: Embedded) -> NDArray[np.float64]:
    angle = item.frames / item.length * np.pi / 2
    return np.stack([np.cos(angle), np.sin(angle)], 1)


def _clamping(item: Embedded) -> NDArray[np.float64]:
    clamp = Context(item.context.offsets, "clamp")
    reached = context_frames(item.frames, length=item.length, context=clamp) - item.frames[:, None]
    farthest = max(1, *(abs(offset) for offset in clamp.offsets))
    # A coordinate of 1 makes any of these a direction.
    return _unit(np.concatenate([reached / farthest, np.ones((len(item), 1))], 1))


def _on(item: Embedded, values: NDArray[np.float64]) -> Embedding:
    return Embedding(values.astype(np.float32), item.embedding.times)


def _unit(vectors: NDArray[Any]) -> NDArray[Any]:
    lengths = np.linalg.norm(vectors, axis=1, keepdims=True)
    return np.asarray(vectors / np.maximum(lengths, np.finfo(np.float32).tiny))
